#!/usr/bin/env python3
"""Checks the machine code of the CUDA kernels against what their sources state. Needs no GPU.

  check_sass.py [--arch 80,90] [SOURCE.cu ...]     compiles the sources (default: all kernels) and checks them
  check_sass.py --archive LIBRARY.a [...]          checks the kernels of built libraries or .cubin files

In the comment above a kernel, or above the functor of a flat kernel, a line states what must hold:

  // SASS <?16, 4, true>: threads 128, blocks 8, shared 49152, loads 4

<...>    the template arguments of the instances that the line is for, with wildcards; without it: all instances
threads  threads of a block; blocks: that so many blocks fit on a multiprocessor (registers, threads, shared memory)
shared   bytes of dynamic shared memory of a block (default 0)
loads    16-byte loads from global memory that a thread issues before it uses the first of them
stack    bytes of local memory that a thread may have, for arrays whose places it computes (default 0)

Of every kernel without the latter it requires that registers do not spill, of loops with tensor-core products that they contain no
WARPSYNC, and of kernels hopper_* that they have products of warpgroups (HGMMA) and tensor memory copies (UTMALDG). Exit status: 0, 1 if something does not hold, 77 if nvdisasm or cuobjdump is missing (CUDA's toolkit has
them; so has PyPI's package triton).
"""
import argparse
import collections
import fnmatch
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[4]
SKIPPED = 77

# Of a multiprocessor: threads, blocks, 32-bit registers, bytes of shared memory for all blocks together. Each block
# costs 1024 bytes of shared memory more than it asks for. From the tables of compute capabilities in the CUDA C++
# Programming Guide.
Processor = collections.namedtuple("Processor", "threads blocks registers shared")
PROCESSORS = {
    80: Processor(2048, 32, 65536, 164 * 1024),
    86: Processor(1536, 16, 65536, 100 * 1024),
    89: Processor(1536, 24, 65536, 100 * 1024),
    90: Processor(2048, 32, 65536, 228 * 1024),
}
RESERVED_SHARED = 1024

Claim = collections.namedtuple("Claim", "name pattern values where")
Instruction = collections.namedtuple("Instruction", "address opcode operands predicated")


class Kernel:
    """The code of one kernel for one architecture, and the resources that it uses."""

    def __init__(self, symbol, arch):
        self.symbol, self.arch = symbol, arch
        self.name = symbol
        self.instructions = []
        self.labels = {}
        self.registers = self.stack = self.shared = 0


# --- claims --------------------------------------------------------------------------------------------------------

CLAIM = re.compile(r"^\s*// SASS(?: <(?P<pattern>.*?)>)?: (?P<values>.*)$")
VALUES = ("threads", "blocks", "shared", "loads", "stack")


def claims_of(text, path):
    """Returns the claims of a source file. Raises ValueError if one is malformed or is above no kernel."""
    claims, open_claims, template = [], [], ""
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        found = CLAIM.match(line)
        if found:
            values = {}
            for word in found["values"].split(","):
                key, _, value = word.strip().partition(" ")
                if key not in VALUES or not value.isdigit():
                    raise ValueError(f"{where}: expected a number after one of {', '.join(VALUES)}; got '{word}'")
                values[key] = int(value)
            if ("blocks" in values or "shared" in values) and "threads" not in values:
                raise ValueError(f"{where}: blocks and shared need threads")
            open_claims.append((found["pattern"], values, where))
            continue
        if not open_claims or re.match(r"\s*//|\s*$", line):
            continue
        if template or re.match(r"\s*template\b", line):  # its parameters may take several lines
            template += line
            if template.count("<") == template.count(">"):
                template = ""
            continue
        found = re.search(r"\b(?:struct|class) (\w+)", line)
        if not found:
            rest = re.sub(r"__launch_bounds__\([^()]*(?:\([^()]*\)[^()]*)*\)", "", line)
            found = re.search(r"(\w+)\(", rest)
        if found:
            claims += [Claim(found[1], *claim) for claim in open_claims]
            open_claims = []
        elif not re.search(r"__global__", line):
            raise ValueError(f"{open_claims[0][2]}: no kernel follows")
    if open_claims:
        raise ValueError(f"{open_claims[0][2]}: no kernel follows")
    return claims


def arguments_of(name, of):
    """Returns the template arguments of the (first) `of<...>` in a demangled name, or '' if it has none."""
    found = re.search(rf"\b{of}<", name)
    if not found:
        return ""
    depth, begin = 1, found.end()
    for at in range(begin, len(name)):
        depth += {"<": 1, ">": -1}.get(name[at], 0)
        if depth == 0:
            return name[begin:at].strip()
    return ""


def is_for(claim, kernel):
    if not re.search(rf"\b{claim.name}\b", kernel.name):
        return False
    return claim.pattern is None or fnmatch.fnmatchcase(arguments_of(kernel.name, claim.name), claim.pattern)


# --- machine code --------------------------------------------------------------------------------------------------

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")


def parse_sass(text, arch):
    """Returns the kernels in the output of `nvdisasm -c`."""
    kernels, kernel = {}, None
    for line in text.splitlines():
        found = re.match(r"^\s*\.section\s+\.text\.(\w+)", line)
        if found:
            kernel = kernels.setdefault(found[1], Kernel(found[1], arch))
            continue
        if kernel is None:
            continue
        found = re.match(r"^(\.L_x_\w+):", line)
        if found:
            kernel.labels[found[1]] = len(kernel.instructions)
            continue
        found = INSTRUCTION.match(line)
        if found:
            kernel.instructions.append(Instruction(found[1], found[3], found[4], found[2] is not None))
    return kernels


def parse_resources(text, kernels):
    """Adds what `cuobjdump -res-usage` says to the kernels."""
    symbol = None
    for line in text.splitlines():
        found = re.match(r"^\s*Function (\w+):", line)
        if found:
            symbol = found[1]
            continue
        values = dict(re.findall(r"\b(REG|STACK|SHARED):(\d+)", line))
        if symbol in kernels and "REG" in values:
            kernel = kernels[symbol]
            kernel.registers, kernel.stack, kernel.shared = (int(values[k]) for k in ("REG", "STACK", "SHARED"))


def registers_in(operand):
    """Returns the numbers of the vector registers that an operand names."""
    return [int(r) for r in re.findall(r"(?<![\w.])R(\d+)\b", operand)]


def most_loads(instructions):
    """Returns the largest number of 16-byte global loads that are issued before the first of them is used."""
    most, pending, count = 0, set(), 0
    for i in instructions:
        operands = i.operands.split(",")
        load = re.match(r"LDG\.E\.(?:\w+\.)*128", i.opcode) is not None
        copy = re.match(r"LDGSTS\.E\.(?:\w+\.)*128", i.opcode) is not None
        first = 0 if re.match(r"ST|RED|BRA|EXIT|LDGSTS|BAR|LDGDEPBAR|DEPBAR", i.opcode) else 1
        reads = {r for operand in operands[first:] for r in registers_in(operand)}
        waits = re.match(r"DEPBAR|LDGDEPBAR|BAR", i.opcode) is not None and count > 0
        leaves = re.match(r"(BRA|EXIT|RET|JMP)\b", i.opcode) is not None and not i.predicated
        if reads & pending or waits or leaves:
            most, pending, count = max(most, count), set(), 0
        if load:
            count += 1
            for register in registers_in(operands[0])[:1]:
                pending |= set(range(register, register + 4))
        elif copy:
            count += 1
        elif first == 1:
            pending -= set(registers_in(operands[0])[:1])
    return max(most, count)


def loops_of(kernel):
    """Returns the ranges of instructions between a backward branch and its target."""
    loops = []
    for at, i in enumerate(kernel.instructions):
        if not i.opcode.startswith("BRA"):
            continue
        found = re.search(r"\.L_x_\w+", i.operands)
        target = kernel.labels.get(found[0]) if found else None
        # A branch to itself ends the code of a kernel.
        if target is not None and target < at:
            loops.append(kernel.instructions[target : at + 1])
    return loops


def blocks_that_fit(kernel, threads, dynamic):
    p = PROCESSORS[kernel.arch]
    warps = -(-threads // 32)
    registers = -(-kernel.registers * 32 // 256) * 256  # of a warp
    # Registers are divided among the four parts of a multiprocessor.
    by_registers = 4 * (p.registers // 4 // registers) // warps if kernel.registers else p.blocks
    static = kernel.shared
    if kernel.arch >= 90 and static >= RESERVED_SHARED:
        static -= RESERVED_SHARED  # reported as a part of the kernel's own
    shared = -(-(static + dynamic) // 128) * 128 + RESERVED_SHARED
    return min(p.blocks, p.threads // (32 * warps), by_registers, p.shared // shared)


def faults_of(kernel, claims):
    """Returns what does not hold for a kernel, as a list of texts."""
    faults = []
    spills = sum(i.opcode.startswith(("STL", "LDL")) for i in kernel.instructions)
    stated = max((c.values["stack"] for c in claims if "stack" in c.values and is_for(c, kernel)), default=0)
    if kernel.stack > stated or (spills and not stated):
        allowed = f"{stated} bytes are stated" if stated else "no spills are allowed"
        faults.append(f"{spills} accesses to local memory, a stack of {kernel.stack} bytes: {allowed}")
    for loop in loops_of(kernel):
        if not any(i.opcode.startswith("HMMA") for i in loop):
            continue
        syncs = sum(i.opcode.startswith("WARPSYNC") for i in loop)
        if syncs:
            faults.append(f"{syncs} WARPSYNC in the product loop at {loop[0].address}: none is allowed")
    if re.search(r"\bhopper_", kernel.name):
        faults += [f"no {opcode} in a kernel for Hopper" for opcode in ("HGMMA", "UTMALDG")
                   if not any(i.opcode.startswith(opcode) for i in kernel.instructions)]
    for claim in claims:
        if not is_for(claim, kernel):
            continue
        values = claim.values
        if "blocks" in values:
            fit = blocks_that_fit(kernel, values["threads"], values.get("shared", 0))
            if fit < values["blocks"]:
                faults.append(f"{fit} blocks of {values['threads']} threads fit with {kernel.registers} registers and "
                              f"{kernel.shared + values.get('shared', 0)} bytes of shared memory; "
                              f"{claim.where} states {values['blocks']}")
        if "loads" in values:
            loads = most_loads(kernel.instructions)
            if loads < values["loads"]:
                faults.append(f"{loads} loads of 16 bytes before the first use; {claim.where} states {values['loads']}")
    return faults


def claims_without_kernels(claims, kernels):
    """Returns the claims that are for none of the kernels. Builds for other GPUs have no kernels of a folder hopper."""
    hopper = any("hopper_" in k.name for k in kernels)
    return [c for c in claims if (hopper or "/hopper/" not in c.where) and not any(is_for(c, k) for k in kernels)]


# --- tools ---------------------------------------------------------------------------------------------------------

def find_tool(name):
    """Returns the path of a tool of CUDA's toolkit, or None."""
    folders = ["/usr/local/cuda/bin"]
    if os.environ.get("DSTRAIN_CUDA_TOOLS"):
        folders.insert(0, os.environ["DSTRAIN_CUDA_TOOLS"])
    triton = importlib.util.find_spec("triton")
    if triton and triton.submodule_search_locations:
        folders.append(str(pathlib.Path(list(triton.submodule_search_locations)[0]) / "backends/nvidia/bin"))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def run(*words):
    return subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def compile_sources(sources, archs, folder):
    nvcc = find_tool("nvcc")
    if not nvcc:
        print("check_sass.py: no nvcc on PATH or in /usr/local/cuda")
        sys.exit(SKIPPED)
    cubins = []
    for source in sources:
        flags = ["--fmad=false"] if "memory_bound" in str(source) else []
        for arch in archs:
            if "hopper" in source.parts:  # instructions of this GPU alone
                if arch != 90:
                    continue
                arch = "90a"
            cubin = folder / f"{source.stem}.{arch}.cubin"
            run(nvcc, "-std=c++20", f"-I{ROOT}", "-O3", "-DNDEBUG", "-DFMT_USE_CONSTEXPR=1",
                "--expt-relaxed-constexpr", *flags, f"-arch=sm_{arch}", "-cubin", "-o", cubin, source)
            cubins.append(cubin)
    return cubins


def extract(paths, cuobjdump, folder):
    """Returns the .cubin files of libraries."""
    cubins = []
    for number, path in enumerate(paths):
        if path.suffix == ".cubin":
            cubins.append(path)
            continue
        inside = folder / str(number)
        inside.mkdir()
        subprocess.run([cuobjdump, "-xelf", "all", str(path.resolve())], check=True, cwd=inside,
                       stdout=subprocess.DEVNULL)
        cubins += sorted(inside.glob("*.cubin"))
    return cubins


def kernels_of(cubin, nvdisasm, cuobjdump):
    sass = run(nvdisasm, "-c", cubin)
    found = re.search(r"\.target\s+sm_(\d+)", sass)
    arch = int(found[1]) if found else 0
    if arch not in PROCESSORS:
        raise ValueError(f"{cubin}: sm_{arch} is not in the table of multiprocessors")
    kernels = parse_sass(sass, arch)
    parse_resources(run(cuobjdump, "-res-usage", cubin), kernels)
    names = run("c++filt", *kernels).splitlines() if kernels else []
    for kernel, name in zip(kernels.values(), names):
        kernel.name = re.sub(r"\(anonymous namespace\)::|dstrain::(cuda::)?", "", name)
    return list(kernels.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="80,90", help="architectures to compile sources for (default 80,90)")
    parser.add_argument("--archive", action="store_true", help="the files are built libraries or .cubin files")
    parser.add_argument("--loads", action="store_true", help="also print the registers and loads of every kernel")
    parser.add_argument("--kernels", type=pathlib.Path, default=ROOT / "kernels/cuda", help="folder with the claims")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    nvdisasm, cuobjdump = find_tool("nvdisasm"), find_tool("cuobjdump")
    if not nvdisasm or not cuobjdump:
        print("no nvdisasm and cuobjdump on PATH, in DSTRAIN_CUDA_TOOLS or /usr/local/cuda; "
              "`pip install triton` has both")
        return SKIPPED

    sources = sorted(options.kernels.rglob("*.cu")) + sorted(options.kernels.rglob("*.cuh"))
    claims = [c for s in sources for c in claims_of(s.read_text(), os.path.relpath(s, ROOT))]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if options.archive:
            cubins = extract(options.files, cuobjdump, folder)
        else:
            files = options.files or [s for s in sources if s.suffix == ".cu" and "__global__" in s.read_text()]
            cubins = compile_sources(files, [int(a) for a in options.arch.split(",")], folder)
        kernels = [k for c in cubins for k in kernels_of(c, nvdisasm, cuobjdump)]
    if not kernels:
        print("no kernels in these files")
        return 1

    failed, checked = 0, set()
    for kernel in kernels:
        checked |= {c for c in range(len(claims)) if is_for(claims[c], kernel)}
        if options.loads:
            print(f"{kernel.name.split('(')[0]} sm_{kernel.arch}: {kernel.registers} registers, "
                  f"{most_loads(kernel.instructions)} loads")
        for fault in faults_of(kernel, claims):
            print(f"{kernel.name.split('(')[0]} sm_{kernel.arch}: {fault}")
            failed += 1
    # Where all kernels were given, a claim about none of them is a mistake.
    if not options.files or options.archive and len(options.files) > 1:
        for claim in claims_without_kernels(claims, kernels):
            print(f"{claim.where}: no kernel {claim.name} <{claim.pattern}> was compiled")
            failed += 1
    print(f"{len(kernels)} kernels, {len(checked)} of {len(claims)} claims: "
          f"{f'{failed} do not hold' if failed else 'all hold'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
