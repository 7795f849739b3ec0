#!/usr/bin/env python3
"""Writes scripts.txt: names of countries in 28 scripts, a language a line, from Debian's package iso-codes."""
import gettext
import pathlib

LANGUAGES = ("en fr vi ru mn el he ar hi bn ta te kn ml gu pa or si th lo my ka hy am ti km dz ko ja zh_CN chr iu "
             "dv").split()
NAMES = ("France", "Germany", "Japan", "India", "Egypt", "Brazil", "Russian Federation", "Greece", "Ethiopia",
         "Thailand", "Georgia", "Armenia", "Israel", "China", "Cambodia", "Mongolia", "Viet Nam", "South Africa",
         "United States", "Switzerland")


def line(language):
    names = list(NAMES)
    if language != "en":
        names = [gettext.translation("iso_3166-1", "/usr/share/locale", [language]).gettext(name) for name in NAMES]
    return "%s: %s.\n" % (language, ", ".join(names))


if __name__ == "__main__":
    (pathlib.Path(__file__).resolve().parent / "scripts.txt").write_text("".join(map(line, LANGUAGES)), encoding="utf-8")
