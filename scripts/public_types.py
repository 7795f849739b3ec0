#!/usr/bin/env python3
"""Prints every public type of the headers with the first sentence of its comment, by folder.

  scripts/public_types.py [FOLDER ...]      all source folders, or these
  scripts/public_types.py --missing         only types without a comment

A public type is a struct, class or enum that a header defines in a namespace with a name, or in the
public part of such a type. Its comment is the one directly above it or behind its opening brace. A type
without one takes the comment at the head of the header where that begins with the type's name, or where
the file is named after the type. "-" stands where there is no comment.
"""
import argparse
import collections
import pathlib
import re
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["runtime", "kernels", "models", "launcher", "benchmarks", "tests"]
NAMESPACE = re.compile(r"^\s*(?:inline )?namespace\s*([\w:]*)\s*\{")
TYPE = re.compile(r"^\s*(?:template\s*<.*>\s*)?(enum class|enum|class|struct|union)\s+(?:alignas\(.*?\)\s*)?"
                  r"(\w+)(?:\s+final)?\s*(:[^:].*|\{.*)?$")
ACCESS = re.compile(r"^\s*(public|protected|private):")
ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "...")

Type = collections.namedtuple("Type", "path line kind name sentence")


def first_sentence(text):
    """Up to the first period, question mark or exclamation mark that ends a sentence."""
    for match in re.finditer(r"[.!?](?=\s|$)", text):
        sentence = text[:match.end()]
        if not sentence.endswith(ABBREVIATIONS):
            return sentence
    return text


def comment_text(lines):
    words = (line.strip().lstrip("/").strip() for line in lines)
    return " ".join(text for text in words if not text.startswith("NOLINT")).strip()


def comment_above(lines, i):
    """The text of the comment that ends on the line above line i; template heads between are skipped."""
    end = i
    while end > 0 and lines[end - 1].strip().startswith("template"):
        end -= 1
    begin = end
    while begin > 0 and lines[begin - 1].strip().startswith("//"):
        begin -= 1
    return comment_text(lines[begin:end])


def without_literals(line):
    """The line without comment, strings and characters, so that its braces can be counted."""
    line = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
    line = re.sub(r"'(?:\\.|[^'\\])'", "''", line)
    return line.split("//")[0]


def head_comment(lines):
    head = []
    for line in lines:
        if not line.startswith("//"):
            break
        head.append(line)
    return comment_text(head)


def snake_case(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def types_of(path, lines):
    """The public types that a header defines, in order."""
    head, found = head_comment(lines), []
    scopes = []  # of every open brace: [kind, name, access]; kind: namespace, type or code
    pending = None  # the type whose opening brace is still to come
    for i, line in enumerate(lines):
        code = without_literals(line)
        space, access = NAMESPACE.match(code), ACCESS.match(code)
        if access and scopes:
            scopes[-1][2] = access[1]
        visible = all(kind == "namespace" and name or kind == "type" and reach == "public"
                      for kind, name, reach in scopes)
        match = TYPE.match(code.rstrip())
        if match and visible:
            outer = "::".join(name for kind, name, _ in scopes if kind == "type")
            full = f"{outer}::{match[2]}" if outer else match[2]
            behind = re.search(r"\{\s*//\s*(.*)", line)
            text = comment_above(lines, i) or (comment_text([behind[1]]) if behind else "")
            if not text and (re.match(rf"{full}\b", head) or snake_case(full) == path.stem):
                text = head
            found.append(Type(path, i + 1, match[1], full, first_sentence(text) or "-"))
        if match:
            pending = ["type", match[2], "private" if match[1] == "class" else "public"]
        for character in code:
            if character == "{":
                if space:
                    scopes.append(["namespace", space[1], "public"])
                    space = None
                else:
                    scopes.append(pending or ["code", "", ""])
                    pending = None
            elif character == "}" and scopes:
                scopes.pop()
            elif character == ";":
                pending = None
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--missing", action="store_true", help="only types without a comment")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="another source tree")
    arguments = parser.parse_args()
    count, folder = 0, None
    for name in arguments.folders:
        headers = [p for p in (arguments.root / name).rglob("*") if p.suffix in (".h", ".cuh")]
        for path in sorted(headers, key=lambda p: (p.parent, p.name)):
            for found in types_of(path, path.read_text().splitlines()):
                if arguments.missing and found.sentence != "-":
                    continue
                if path.parent != folder:
                    folder = path.parent
                    print(f"\n{folder.relative_to(arguments.root)}/")
                count += 1
                print(f"  {path.name}:{found.line}  {found.kind} {found.name}\n      {found.sentence}")
    print(f"\n{count} types")
    if count == 0 and not arguments.missing:
        sys.exit("no types found")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `... | head` ends it quietly
    main()
