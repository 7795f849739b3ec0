#!/usr/bin/env python3
"""Seeds wrong lines into the code of models, one at a time, and checks that the golden tests find each.

  scripts/seeded_model_changes.py [--only PART_OF_A_NAME] [--folder FOLDER]

Copies the tracked files into FOLDER (default: build/seeded), builds the program and `test_families` there, which must pass,
and then builds and runs them with each change. A line for each change: how many of its checks failed. The exit status is 1
if a change fails no check, or does not compile. Quiet and on two cores it takes about 15 minutes.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DECODER, KEYS, ROTARY = "models/decoder/decoder.cpp", "models/decoder/keys.cpp", "runtime/ir/rotary.cpp"
EXPERTS, EXPERT_KEYS = "models/decoder/mixture.cpp", "models/decoder/mixture_keys.cpp"
GPT2, NEOX, SIMD = "models/gpt2/gpt2.cpp", "models/gpt_neox/gpt_neox.cpp", "kernels/cpu/memory_bound"

# Name: the edits, each a file, its text and the wrong one.
CHANGES = {
    "gate and up swapped": [(DECODER, "b_.gated(gate, up,", "b_.gated(up, gate,")],
    "norms of queries and keys swapped": [
        (DECODER, 'q = norm(q, name + "q_norm"', 'q = norm(q, name + "k_norm"'),
        (DECODER, 'k = norm(k, name + "k_norm"', 'k = norm(k, name + "q_norm"')],
    "half of the norm's epsilon": [(DECODER, 'c.real("rms_norm_eps")', '0.5 * c.real("rms_norm_eps")')],
    "norms of a block swapped": [
        (DECODER, 'norm(x, name + ".input_layernorm"', 'norm(x, name + ".post_attention_layernorm"'),
        (DECODER, '".pre_feedforward_layernorm" : ".post_attention_layernorm"',
         '".pre_feedforward_layernorm" : ".input_layernorm"')],
    "keys without positions": [(DECODER, "k = b_.rotary(k, seq_len_, rotary, documents);", "")],
    "queries without positions": [(DECODER, "q = b_.rotary(q, seq_len_, rotary, documents);", "")],
    "a window of one more key": [
        (KEYS, 'has_window(c, part, layer) ? c.integer("sliding_window") : 0;',
         'has_window(c, part, layer) ? c.integer("sliding_window") + 1 : 0;')],
    "windows in the other layers": [(KEYS, "types[index] == kSliding;", "types[index] == kFull;")],
    "norms of weights that are not centred": [(DECODER, ".centred = centred}", ".centred = false}")],
    "embeddings that are not scaled": [(DECODER, "if (parts_.scaled_embedding) x =", "if (false) x =")],
    "no limit of logits": [("models/token_head.cpp", "softcap > 0)", "softcap > 1e9)")],
    "scores without their own scale": [(DECODER, "scalar > 0 ? 1 / std::sqrt(scalar) : 0", "0")],
    "one theta for all layers": [(DECODER, "local ? local_rotary_of(c_, head_size_)", "false ? local_rotary_of(c_, head_size_)")],
    "GPT-NeoX's MLP behind attention": [(NEOX, "if (beside) return b_.add_dropout(with_attention, mlp(x, name)",
                                         "if (beside) return b_.add_dropout(with_attention, mlp(with_attention, name)")],
    "GPT-NeoX's values rotated": [(NEOX, "rotary_.sections = 3;", "")],
    "llama3's ends swapped": [
        (ROTARY, "wavelength > a.original_positions / a.low_freq_factor", "wavelength > a.original_positions / a.high_freq_factor")],
    "positions multiplied by the factor": [(ROTARY, "f /= a.factor;", "f *= a.factor;")],
    "yarn's ramp turned": [
        (ROTARY, "f = f / a.factor * share + f * (1 - share);", "f = f / a.factor * (1 - share) + f * share;")],
    "yarn without its scale": [(ROTARY, "return mscale_of(a.factor, 1);", "return 1;")],
    "dynamic's exponent": [(ROTARY, "size / (size - 2))", "1.0 + 0.0 * size)")],
    "a rotation backwards": [
        (f"{SIMD}/rotary.cpp", "store(fnma(b, s, a * c), y + i, n);", "store(fma(b, s, a * c), y + i, n);"),
        (f"{SIMD}/rotary.cpp", "store(fma(a, s, b * c), y + half + i, n);", "store(fnma(a, s, b * c), y + half + i, n);")],
    "GPT-2's epsilon is the usual one": [(GPT2, 'static_cast<float>(c_.real("layer_norm_epsilon"))', "1e-5F")],
    "GPT-2's norms swapped": [
        (GPT2, 'y = linear(norm(x, name + ".ln_1")', 'y = linear(norm(x, name + ".ln_2")'),
        (GPT2, 'h = linear(norm(x, name + ".ln_2")', 'h = linear(norm(x, name + ".ln_1")')],
    "GPT-2's head is its embedding": [(GPT2, 'c_.flag("tie_word_embeddings") ? token', "true ? token")],
    "GPT-2's attention sees other documents": [
        (GPT2, 'c_.real("attn_pdrop"), b_.documents(t));', 'c_.real("attn_pdrop"), kNone);')],
    "GPT-2's positions count from the sample": [
        (GPT2, "b_.embed(ids, token, position, seq_len_, b_.documents(seq_len_))", "b_.embed(ids, token, position, seq_len_, kNone)")],
    "adapters without their rank": [
        ("runtime/core/fine_tuning/fine_tuning.cpp", "alpha / (rslora ? std::sqrt(rank) : rank)", "alpha / (rslora ? std::sqrt(rank) : 1.0)")],
    "adapters of rslora scaled as others": [
        ("runtime/core/fine_tuning/fine_tuning.cpp", "alpha / (rslora ? std::sqrt(rank) : rank)", "alpha / rank")],
    "gate and up of experts swapped": [(EXPERTS, "b_.gated(gate, up,", "b_.gated(up, gate,")],
    "weights of experts that do not add up to 1": [(EXPERTS, "{.normalised = normalised,", "{.normalised = false,")],
    "an MLP beside experts without its gate": [(EXPERTS, "Formula::input(1) * sigmoid(Formula::input(2))", "Formula::input(1) + 0.0F * Formula::input(2)")],
    "choices balanced in the last layer alone": [(EXPERTS, "if (before == kNone) return now;", "if (before == kNone || before != now) return now;")],
    "experts in the other layers": [(EXPERT_KEYS, "(layer + 1) % c.integer", "layer % c.integer")],
    "queries, keys and values without a limit": [(DECODER, "return most > 0 ?", "return most > 1e9F ?")],
    "biases of attention left out": [
        (DECODER, 'parts.biases == AttentionBiases::by_key && c.flag("attention_bias")', "false")],
}


def run(command, **options):
    return subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def build_and_test(folder):
    """Returns whether it compiled, and what the test printed."""
    build = run(["cmake", "--build", folder / "build/release", "--target", "dstrain", "test_families"])
    if build.returncode != 0:
        return False, build.stdout
    test = run([folder / "build/release/bin/test_families"])
    return True, test.stdout if test.returncode != 0 else ""


def failed_checks(printed):
    counts = re.findall(r"assertions?: .*?(\d+) failed", printed)
    return int(counts[-1]) if counts else 1


def copy_tree(folder):
    """Copies the tracked files whose contents differ, so that a build goes on from the last one."""
    for name in filter(None, run(["git", "ls-files"], cwd=ROOT).stdout.split("\n")):
        source, target = ROOT / name, folder / name
        if not source.is_file() or (target.exists() and target.read_bytes() == source.read_bytes()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/seeded")
    args = parser.parse_args()
    folder = args.folder.resolve()
    copy_tree(folder)
    os.environ.update(CCACHE_BASEDIR=str(folder), CCACHE_NOHASHDIR="1")
    run(["cmake", "--preset", "release"], cwd=folder)
    compiled, printed = build_and_test(folder)
    if not compiled or printed:
        sys.exit(f"without a change:\n{printed}")
    missed = 0
    chosen = {name: edits for name, edits in CHANGES.items() if args.only in name}
    for name, edits in chosen.items():
        before = {}
        for file, right, wrong in edits:
            path = folder / file
            text = path.read_text()
            before.setdefault(path, text)
            if text.count(right) != 1:
                sys.exit(f"{name}: {file} has {text.count(right)} times: {right}")
            path.write_text(text.replace(right, wrong))
        compiled, printed = build_and_test(folder)
        for path, text in before.items():
            path.write_text(text)
        found = failed_checks(printed) if compiled and printed else 0
        missed += found == 0
        print(f"{name}: " + (f"{found} checks fail" if found else "NOT FOUND" if compiled else f"does not compile\n{printed[-2000:]}"), flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
