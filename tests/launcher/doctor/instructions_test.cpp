#include "launcher/doctor/instructions.h"

#include <catch2/catch.hpp>

#include "tests/launcher/doctor/made_up_machine.h"

namespace dstrain {
namespace {

TEST_CASE(
    "the processor's level is the last one whose features and those before it are all there") {
  const MadeUpMachine machine;
  const std::string avx2 = "fpu avx2 fma f16c bmi2 ",
                    avx512 = avx2 + "avx512f avx512bw avx512cd avx512dq avx512vl ";
  const auto [flags, isa] = GENERATE_COPY(
      table<std::string, Isa>({{"fpu sse sse2", Isa::baseline},
                               {"avx2 fma f16c", Isa::baseline},
                               {avx2, Isa::avx2},
                               {avx2 + "avx512f avx512bw avx512_bf16", Isa::avx2},
                               {avx512, Isa::avx512},
                               {avx512 + "amx_tile amx_bf16", Isa::avx512},
                               {avx512 + "avx512_bf16 amx_tile", Isa::avx512_bf16},
                               {avx512 + "avx512_bf16 amx_tile amx_bf16", Isa::amx}}));
  machine.file("proc/cpuinfo", "model name\t: x\nflags\t\t: " + flags + "\n");
  CHECK(offered_isa(machine.root()) == isa);
}

TEST_CASE("a processor without a list of features has the baseline") {
  const MadeUpMachine machine;
  CHECK(offered_isa(machine.root()) == Isa::baseline);
  machine.file("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
  CHECK(offered_isa(machine.root()) == Isa::baseline);
}

TEST_CASE("kernels that use less than the processor has are a note that says why") {
  const auto line = [](const InstructionFacts& facts) {
    const MachineLines lines = instruction_lines(facts);
    REQUIRE(lines.size() == 1);
    return lines[0];
  };
  const MachineLine all =
      line({.offered = Isa::avx512_bf16, .used = Isa::avx512_bf16, .limit = ""});
  CHECK(all.health == Health::ok);
  CHECK(
      all.text ==
      "the processor has AVX2, AVX-512, AVX512_BF16, not AMX; a run uses kernels for avx512_bf16");
  CHECK(all.values["used"] == "avx512_bf16");
  const MachineLine limited = line({.offered = Isa::avx512, .used = Isa::avx2, .limit = "avx2"});
  CHECK(limited.health == Health::note);
  CHECK(limited.remedy == "DSTRAIN_MAX_ISA is avx2: unset it for the fastest kernels");
  const MachineLine refused = line({.offered = Isa::amx, .used = Isa::avx512_bf16, .limit = ""});
  CHECK(refused.health == Health::note);
  CHECK(refused.remedy.starts_with("the operating system does not give the registers"));
  const MachineLine built =
      line({.offered = Isa::amx, .used = Isa::amx, .built = Isa::avx2, .limit = ""});
  CHECK(built.health == Health::note);
  CHECK(built.text.ends_with("but vector code for avx2 at most, as this program was built"));
  CHECK(line({.offered = Isa::avx2, .used = Isa::avx2, .built = Isa::avx2, .limit = ""}).health ==
        Health::ok);
  const MachineLine baseline = line({.limit = ""});
  CHECK(baseline.health == Health::note);
  CHECK(baseline.text.starts_with("the processor has none of the instruction sets"));
}

TEST_CASE("kernels use no more than this processor's features allow") {
  const InstructionFacts facts = instruction_facts("/");
  CHECK(facts.used <= facts.offered);
}

}  // namespace
}  // namespace dstrain
