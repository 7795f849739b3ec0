// Attention reads queries, keys and values where they are.
#include <catch2/catch.hpp>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_heads {
namespace {

constexpr int64_t kBatch = 2, kTokens = 5, kHeads = 4, kWidth = 3, kColumns = kHeads * kWidth;
constexpr AttentionHeads kAttention{.heads = kHeads, .kv_heads = kHeads, .seq_len = kTokens};

// Returns rows of tokens that are copied, through heads apart (batch, heads, tokens, width), from columns of rows.
BufferId copied(Builder& b, BufferId rows, int64_t row, int64_t first, int64_t group = 1) {
  const int64_t heads = kHeads / group;
  const View head_by_head = strided({kTokens * row, kWidth, 0, row, 1}, first);
  const BufferId apart =
      b.map(Formula::input(0), {kBatch, heads, group, kTokens, kWidth}, {{rows, head_by_head}});
  const View by_token = strided({kColumns * kTokens, kWidth, kTokens * kWidth, 1});
  return b.matrix(b.map(Formula::input(0), {kBatch, kTokens, kHeads, kWidth}, {{apart, by_token}}),
                  kColumns);
}

TEST_CASE(
    "attention reads one tensor of queries, keys and values in place of copies of its parts") {
  GeneralForms p({kTokens, 3 * kColumns}, kBatch);
  const auto part = [&](int64_t i) { return copied(p.builder, p.x, 3 * kColumns, i * kColumns); };
  const BufferId q = part(0), k = part(1), v = part(2);
  p.builder.attention(q, k, v, kAttention);
  recognise(p.program);
  CHECK(operations(p.program) == "attention");
  CHECK(p.program.instructions.back().reads == std::vector{p.x});
  CHECK(attrs_as<AttentionAttrs>(p.program.instructions.back().attrs).kv_heads == 0);
}

TEST_CASE("keys that were repeated for the heads that they serve are read once") {
  constexpr int64_t kGroup = 2, kKeys = kColumns / kGroup;
  GeneralForms p({kTokens, kColumns}, kBatch);
  const BufferId k = p.builder.input("k", InputRole::array, DType::f32, {kTokens, kKeys});
  const BufferId v = p.builder.input("v", InputRole::array, DType::f32, {kTokens, kKeys});
  const BufferId all_k = copied(p.builder, k, kKeys, 0, kGroup),
                 all_v = copied(p.builder, v, kKeys, 0, kGroup);
  p.builder.attention(p.x, all_k, all_v, kAttention);
  recognise(p.program);
  CHECK(operations(p.program) == "attention");
  CHECK(p.program.instructions.back().reads == std::vector{p.x, k, v});
  CHECK(attrs_as<AttentionAttrs>(p.program.instructions.back().attrs).kv_heads == kHeads / kGroup);
}

TEST_CASE("parts in another order, and parts of wider rows, are copied as before") {
  GeneralForms p({kTokens, 3 * kColumns}, kBatch);
  const auto part = [&](int64_t i) { return copied(p.builder, p.x, 3 * kColumns, i * kColumns); };
  const BufferId k = part(1), q = part(0), v = part(2);
  p.builder.attention(k, q, v, kAttention);
  recognise(p.program);
  CHECK(operations(p.program) == "map map map map map map attention");
  CHECK(p.program.instructions.back().reads == std::vector{k, q, v});
}

TEST_CASE("a copy that another layer has made is read as it is") {
  GeneralForms p({kTokens, kColumns}, kBatch);
  const BufferId q = copied(p.builder, p.x, kColumns, 0);
  p.builder.unit("next");
  p.builder.attention(q, q, q, kAttention);
  recognise(p.program);
  CHECK(p.program.instructions.back().reads == std::vector{q, q, q});
}

}  // namespace
}  // namespace dstrain::recognised_heads
