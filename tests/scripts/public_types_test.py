#!/usr/bin/env python3
"""scripts/public_types.py on a header with types of every kind, and on this tree."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = """// Widget: turns things, e.g. wheels. Has two
// threads.
#pragma once

namespace dstrain {

class Forward;

class Widget final : public Base {
 public:
  // What a turn needs. Every
  // field is in seconds.
  struct Options {
    int turns = 0;
  };
  enum class Kind { small, large };

 private:
  // Nobody sees this one.
  struct Hidden {
    int x;
  };
};

struct Pair {  // two ints; more
  int a, b;
};

// How many there are.
template <class T>
struct Count
    : Pair {
  std::string text = "{ struct NoType {";
};

struct Bare {
  int size() const {
    struct Local { int y; };
    return 0;
  }
};

namespace {
struct InOneFile {};
}  // namespace

}  // namespace dstrain
"""
EXPECTED = """
runtime/core/
  widget.h:9  class Widget
      Widget: turns things, e.g. wheels.
  widget.h:13  struct Widget::Options
      What a turn needs.
  widget.h:16  enum class Widget::Kind
      -
  widget.h:25  struct Pair
      two ints; more
  widget.h:31  struct Count
      How many there are.
  widget.h:36  struct Bare
      -

6 types
"""


def run(*words):
    return subprocess.run([sys.executable, ROOT / "scripts/public_types.py", *words], capture_output=True, text=True)


class PublicTypes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "runtime/core").mkdir(parents=True)
        (self.root / "runtime/core/widget.h").write_text(HEADER)

    def test_all_types_and_first_sentences(self):
        self.assertEqual(run("--root", self.root).stdout, EXPECTED)

    def test_missing_ones_alone(self):
        out = run("--root", self.root, "--missing").stdout
        self.assertIn("Bare", out)
        self.assertNotIn("Pair", out)
        self.assertIn("2 types", out)

    def test_a_folder_without_headers(self):
        self.assertEqual(run("--root", self.root, "kernels").returncode, 1)

    def test_this_tree(self):
        out = run("runtime/ir").stdout
        self.assertIn("struct Instruction", out)
        self.assertRegex(out, r"\n\d+ types\n$")


unittest.main()
