"""Tests of check_sass.py on small texts: that it finds what it must find, and nothing else. Needs no tools."""
import unittest

import check_sass
from check_sass import Kernel, claims_of, faults_of, most_loads, parse_sass

HEAD = '\t.section\t.text._Zkernel,"ax",@progbits\n'


def line(address, code):
    return f"        /*{address:04x}*/                   {code} ;\n"


def kernel_of(*codes, registers=40, shared=0, arch=80):
    text = HEAD
    for address, code in enumerate(codes):
        text += code + "\n" if code.startswith(".L") else line(16 * address, code)
    kernel = parse_sass(text, arch)["_Zkernel"]
    kernel.name, kernel.registers, kernel.shared = "void add_rows<bf16, 4, true>(int)", registers, shared
    return kernel


class Loads(unittest.TestCase):
    def count(self, *codes):
        return most_loads(kernel_of(*codes).instructions)

    def test_loads_before_the_first_use_count(self):
        first, second = "LDG.E.128 R4, desc[UR4][R2.64]", "@P0 LDG.E.128.CONSTANT R8, desc[UR4][R2.64+0x200]"
        use = "FADD R0, R5, R0"
        self.assertEqual(self.count(first, second, use), 2)
        self.assertEqual(self.count(first, use, second, use), 1)

    def test_narrow_loads_do_not_count(self):
        self.assertEqual(self.count("LDG.E R4, desc[UR4][R2.64]", "LDG.E.64 R6, desc[UR4][R2.64]"), 0)

    def test_a_store_of_a_loaded_value_uses_it(self):
        load, store = "LDG.E.128 R4, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R20.64], R4"
        self.assertEqual(self.count(load, store, load, store), 1)

    def test_a_jump_ends_the_count(self):
        load = "LDG.E.128 R4, desc[UR4][R2.64]"
        self.assertEqual(self.count(load, "BRA `(.L_x_1)", ".L_x_1:", load), 1)

    def test_copies_to_shared_memory_count_until_the_wait(self):
        copy = "LDGSTS.E.BYPASS.128 [R7], desc[UR4][R2.64]"
        self.assertEqual(self.count(copy, copy, "LDGDEPBAR", copy), 2)


class Faults(unittest.TestCase):
    def test_a_warp_barrier_in_a_product_loop_is_a_fault(self):
        product = "HMMA.16816.F32.BF16 R4, R8, R12, R4"
        loop = (".L_x_1:", product, "WARPSYNC 0xffffffff", "@P0 BRA `(.L_x_1)")
        self.assertIn("1 WARPSYNC in the product loop", faults_of(kernel_of(*loop), [])[0])
        self.assertEqual(faults_of(kernel_of("WARPSYNC 0xffffffff", ".L_x_1:", product, "@P0 BRA `(.L_x_1)"), []), [])
        self.assertEqual(faults_of(kernel_of(".L_x_1:", "WARPSYNC R3", "@P0 BRA `(.L_x_1)", product), []), [])

    def test_a_spill_is_a_fault(self):
        self.assertIn("no spills", faults_of(kernel_of("STL [R1], R4"), [])[0])
        self.assertEqual(faults_of(kernel_of("STS [R1], R4"), []), [])

    def test_local_memory_that_is_stated_is_none_up_to_that_size(self):
        claims = claims_of("// SASS: stack 64\n__global__ void product(int a) {", "a.cu")
        kernel = kernel_of("STL [R1], R4")
        kernel.name = "void product(int)"
        for stack, faults in ((0, 0), (64, 0), (72, 1)):
            kernel.stack = stack
            self.assertEqual(len(faults_of(kernel, claims)), faults)
        kernel.name = "void another(int)"
        self.assertEqual(len(faults_of(kernel, claims)), 1)

    def test_claims_about_occupancy_and_loads(self):
        claims = claims_of("// SASS <?*16, 4, true>: threads 256, blocks 4, loads 1\ntemplate <class T>\n"
                           "__global__ void __launch_bounds__(32 * kWarps)\n    add_rows(int x) {\n", "a.cu")
        load = "LDG.E.128 R4, desc[UR4][R2.64]"
        self.assertEqual(faults_of(kernel_of(load, registers=64), claims), [])
        self.assertIn("3 blocks of 256", faults_of(kernel_of(load, registers=72), claims)[0])
        self.assertIn("2 blocks of 256", faults_of(kernel_of(load, shared=70000), claims)[0])
        self.assertIn("0 loads of 16 bytes", faults_of(kernel_of("EXIT"), claims)[0])
        other = kernel_of("EXIT")
        other.name = "void add_rows<float, 4, true>(int)"
        self.assertEqual(faults_of(other, claims), [])

    def test_kernels_for_hopper_have_its_instructions(self):
        kernel = kernel_of("HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24", "UTMALDG.4D [UR8], [UR4]")
        kernel.name = "void hopper_forward_kernel<64>(int)"
        self.assertEqual(faults_of(kernel, []), [])
        kernel.instructions.pop()
        self.assertEqual(faults_of(kernel, []), ["no UTMALDG in a kernel for Hopper"])

    def test_blocks_that_fit(self):
        def fit(registers, threads, shared, arch):
            kernel = Kernel("k", arch)
            kernel.registers = registers
            return check_sass.blocks_that_fit(kernel, threads, shared)

        self.assertEqual(fit(255, 128, 0, 90), 2)
        self.assertEqual(fit(32, 256, 0, 90), 8)
        self.assertEqual(fit(128, 128, 65536, 90), 3)
        self.assertEqual(fit(128, 128, 65536, 80), 2)
        self.assertEqual(fit(16, 32, 0, 90), 32)


class Claims(unittest.TestCase):
    def test_malformed_claims_are_errors(self):
        for text in ("// SASS: warps 4\nstruct A {\n", "// SASS: loads many\nstruct A {\n",
                     "// SASS: blocks 2\nstruct A {\n",
                     "// SASS: loads 4\nint x;\n", "// SASS: loads 4\n"):
            with self.assertRaises(ValueError, msg=text):
                claims_of(text, "a.cu")

    def test_a_claim_names_the_kernel_below_it(self):
        text = ("// SASS: loads 4\ntemplate <class T>\nstruct Add {\n// SASS <1>: loads 2\n"
                "__global__ void __launch_bounds__(f(2), 3) sum(int x) {\n")
        self.assertEqual([(c.name, c.pattern, c.where) for c in claims_of(text, "a.cu")],
                         [("Add", None, "a.cu:1"), ("sum", "1", "a.cu:4")])

    def test_the_parameters_of_a_template_may_take_several_lines(self):
        text = "// SASS: loads 4\ntemplate <class T,\n          bool kVector>\n__global__ void sum(int x) {\n"
        self.assertEqual([c.name for c in claims_of(text, "a.cu")], ["sum"])

    def test_a_claim_about_no_kernel_is_found_unless_the_build_leaves_its_folder_out(self):
        claims = [*claims_of("// SASS: loads 4\n__global__ void sum(int x) {\n", "a.cu"),
                  *claims_of("// SASS: loads 4\n__global__ void hopper_sum(int x) {\n", "a/hopper/b.cu"),
                  *claims_of("// SASS: loads 4\n__global__ void hopper_scale(int x) {\n", "a/hopper/b.cu")]

        def without(*names):
            kernels = [check_sass.Kernel(name, 90) for name in names]
            return [c.name for c in check_sass.claims_without_kernels(claims, kernels)]

        self.assertEqual(without("add"), ["sum"])
        self.assertEqual(without("sum"), [])
        self.assertEqual(without("sum", "hopper_sum"), ["hopper_scale"])

    def test_the_claims_of_all_kernels_can_be_read(self):
        kernels = check_sass.ROOT / "kernels/cuda"
        sources = [*kernels.rglob("*.cu"), *kernels.rglob("*.cuh")]
        self.assertGreater(sum(len(claims_of(s.read_text(), str(s))) for s in sources), 20)


if __name__ == "__main__":
    unittest.main()
