#include "runtime/plan/recognise/sources.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("a value comes from the one instruction of its sublayer that writes it") {
  Program program;
  const auto buffer = [&program](const char* name) {
    return program.add_buffer({.name = name, .shape = {2}, .dtype = DType::f32});
  };
  const BufferId input = buffer("input"), once = buffer("once"), twice = buffer("twice");
  const auto write = [&program](BufferId from, BufferId to) {
    program.instructions.push_back({.op = OpKind::scale, .reads = {from}, .writes = {to, kNone}});
  };
  write(input, once);
  write(once, twice);
  write(input, twice);
  const Sources sources(program);
  CHECK(sources.of(once, 0) == program.instructions.data());
  CHECK(sources.of(once, 1) == nullptr);
  CHECK(sources.of(twice, 0) == nullptr);
  CHECK(sources.of(input, 0) == nullptr);
  CHECK(sources.of(kNone, 0) == nullptr);
  CHECK(sources.readers(input) == 2);
}

}  // namespace
}  // namespace dstrain
