#!/usr/bin/env python3
"""What scripts/gpu_check.sh --dry-run says that it would run on 2, 4 and 8 GPUs. Runs none of it, and needs no toolkit."""
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What several GPUs are for, by the functions of scripts/gpu_check_several.sh and the words that they get.
ON_TWO = ("all_stages", "layout tensor", "layout sequence", "quantized zero_quantized_weights",
          "quantized zero_quantized_gradients", "offload_on", "resume_on_half", "validation_on", "packed_llama", "pipeline",
          "graphs", "not_finite", "killed_rank", "scaling")
ON_FOUR = ("layout tensor_pipeline", "layout sequence_pipeline", "secondary_shards")


def dry_run(*words, status=0):
    run = subprocess.run([ROOT / "scripts/gpu_check.sh", "--dry-run", *words], text=True, capture_output=True, timeout=60,
                         env={"PATH": "/usr/bin:/bin"})
    assert run.returncode == status, run.stderr
    return run.stdout.splitlines() if status == 0 else run.stderr


def steps_of(lines):
    """Returns by number of GPUs the functions of the steps, each with its name of a run where it has one."""
    steps = {}
    for line in lines:
        gpus, rest = line.split(" GPUs: ", 1)
        function, ranks, *words = rest.rsplit(": ", 1)[1].split()
        assert ranks == gpus, line
        named = function in ("layout", "quantized")
        steps.setdefault(int(gpus), []).append(f"{function} {words[0]}" if named else function)
    return steps


class DryRun(unittest.TestCase):
    def test_several_gpus(self):
        steps = steps_of(dry_run("--part", "gpus"))
        self.assertEqual(sorted(steps), [2, 4, 8])
        self.assertEqual(set(steps[2]), set(ON_TWO))
        for gpus in (4, 8):
            self.assertEqual(set(steps[gpus]), {*ON_TWO, *ON_FOUR})

    def test_as_many_gpus_as_there_may_be(self):
        for gpus, used in ((2, 2), (3, 2), (4, 4), (7, 4), (8, 8)):
            self.assertEqual(list(steps_of(dry_run("--part", "gpus", "--gpus", str(gpus)))), [used])
        self.assertIn("--gpus: expected 2 to 8, found 9", dry_run("--part", "gpus", "--gpus", "9", status=1))

    def test_some_steps_and_another_part(self):
        lines = dry_run("--part", "gpus", "--gpus", "8", "--only", "^hpZ")
        self.assertEqual(lines, ["8 GPUs: hpZ: parameters divided among 4 of 8 ranks: secondary_shards 8 4"])
        self.assertIn("pipeline of two ranks: pipeline 2", dry_run("--part", "checks"))

    def test_every_step_has_its_function(self):
        functions = "".join(path.read_text() for path in ROOT.glob("scripts/gpu_check_*.sh"))
        for part in ("checks", "figures", "gpus"):
            for line in dry_run("--part", part):
                function = line.rsplit(": ", 1)[1].split()[0]
                self.assertTrue(f"\n{function}() {{" in functions or function.startswith("build/"), line)


if __name__ == "__main__":
    unittest.main()
