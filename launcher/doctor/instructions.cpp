#include "launcher/doctor/instructions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "launcher/doctor/cores.h"

namespace dstrain {
namespace {

// A level, its usual name, and the features that the processor must have for it besides those of the levels before.
struct IsaLevel {
  Isa isa;
  std::string_view name;
  std::vector<std::string> features;  // as in /proc/cpuinfo
};

const std::array<IsaLevel, 4>& isa_levels() {
  static const std::array<IsaLevel, 4> levels{
      {{Isa::avx2, "AVX2", {"avx2", "fma", "f16c", "bmi2"}},
       {Isa::avx512, "AVX-512", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}},
       {Isa::avx512_bf16, "AVX512_BF16", {"avx512_bf16"}},
       {Isa::amx, "AMX", {"amx_tile", "amx_bf16"}}}};
  return levels;
}

// Returns the names of the levels up to `isa`, or of those above it: "AVX2, AVX-512"; empty if there are none.
std::string level_names(Isa isa, bool above) {
  std::vector<std::string_view> names;
  for (const IsaLevel& level : isa_levels())
    if ((level.isa > isa) == above) names.push_back(level.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Isa offered_isa(const std::filesystem::path& root) {
  std::istringstream in(cpuinfo_field(root, "flags"));
  const std::set<std::string> features{std::istream_iterator<std::string>(in), {}};
  Isa offered = Isa::baseline;
  for (const IsaLevel& level : isa_levels()) {
    if (!std::ranges::all_of(level.features,
                             [&](const std::string& f) { return features.contains(f); }))
      break;
    offered = level.isa;
  }
  return offered;
}

InstructionFacts instruction_facts(const std::filesystem::path& root) {
  const char* const limit = std::getenv("DSTRAIN_MAX_ISA");
  return {.offered = offered_isa(root),
          .used = max_isa(),
          .built = isa_named(DSTRAIN_BUILT_ISA),
          .limit = limit != nullptr ? limit : ""};
}

MachineLines instruction_lines(const InstructionFacts& facts) {
  const std::string has = level_names(facts.offered, false),
                    lacks = level_names(facts.offered, true);
  MachineLine line{
      .subject = "kernels",
      .text = fmt::format(
          "the processor has {}{}; a run uses kernels for {}",
          has.empty() ? "none of the instruction sets that kernels choose from" : has,
          has.empty() || lacks.empty() ? "" : fmt::format(", not {}", lacks), name_of(facts.used)),
      .values = {{"processor", name_of(facts.offered)},
                 {"used", name_of(facts.used)},
                 {"built", name_of(facts.built)},
                 {"DSTRAIN_MAX_ISA", facts.limit}}};
  if (facts.used < facts.offered) {
    line.health = Health::note;
    line.remedy =
        facts.limit.empty()
            ? "the operating system does not give the registers to programs: a newer "
              "kernel, or another setting of the virtual machine, may"
            : fmt::format("DSTRAIN_MAX_ISA is {}: unset it for the fastest kernels", facts.limit);
  } else if (facts.built < std::min(facts.used, Isa::avx512)) {
    line.health = Health::note;
    line.text += fmt::format(", but vector code for {} at most, as this program was built",
                             name_of(facts.built));
    line.remedy = "build dstrain with -DDSTRAIN_KERNEL_VARIANTS=ON";
  } else if (facts.used == Isa::baseline) {
    line.health = Health::note;
    line.remedy = "runs on the CPU are faster on a processor with AVX2";
  }
  return {line};
}

}  // namespace dstrain
