#!/usr/bin/env python3
"""scripts/includes.py on source trees of a few files, and on this one."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOORS = '{{"runtime/core", 0}, {"runtime/ir", 1},\n {"kernels", 2}}'


def run(*words):
    done = subprocess.run([sys.executable, ROOT / "scripts/includes.py", *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Includes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("tests/meta/include_order_test.cpp", FLOORS)
        self.write("runtime/core/a.h", "#include <vector>\n")
        self.write("kernels/k.cpp", '#include "runtime/core/a.h"\n#include "kernels/k.h"\n#include "hwy/highway.h"\n')

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def look(self, *words):
        return run("--root", self.root, *words)

    def test_arrows_down(self):
        status, out, _ = self.look()
        self.assertEqual(status, 0)
        self.assertIn("kernels    -> runtime 1\n", out)
        self.assertIn("kernels      -> runtime/core 1\n", out)
        self.assertIn("no arrow points up", out)

    def test_a_folder_that_includes_a_higher_one(self):
        self.write("runtime/core/b.cpp", '  #  include "kernels/k.h"  // why\n')
        status, out, err = self.look("--list")
        self.assertEqual(status, 1)
        self.assertIn("runtime    -> kernels 1 (UP)", out)
        self.assertIn("runtime/core/b.cpp includes kernels/k.h", out)
        self.assertIn("2 arrows point up", err)  # between top folders, and between modules

    def test_a_module_that_includes_a_higher_one(self):
        self.write("runtime/core/b.cpp", '#include "runtime/ir/op.h"\n')
        status, out, err = self.look()
        self.assertEqual(status, 1)
        self.assertIn("runtime/core -> runtime/ir 1 (UP)", out)
        self.assertIn("1 arrows point up", err)

    def test_folders_of_one_floor(self):
        self.write("models/m.cpp", '#include "kernels/k.h"\n')
        self.assertEqual(self.look()[0], 1)

    def test_benchmarks_and_tests_share(self):
        self.write("tests/t.cpp", '#include "benchmarks/b.h"\n')
        self.write("benchmarks/b.cpp", '#include "tests/t.h"\n')
        self.assertEqual(self.look()[0], 0)

    def test_no_table_of_floors(self):
        self.write("tests/meta/include_order_test.cpp", "")
        self.assertIn("no table of floors", self.look()[2])

    def test_no_arrow_of_this_tree_points_up(self):
        status, out, _ = run()
        self.assertEqual(status, 0)
        self.assertRegex(out, r"launcher +-> .*runtime \d\d\d")
        self.assertRegex(out, r"runtime/plan +-> .*runtime/ir \d")


unittest.main()
