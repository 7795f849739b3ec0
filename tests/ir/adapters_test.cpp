// Low-rank adapters in the programs that a builder makes.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/plan/build_model.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

Program adapted(const LoraConfig& lora, const ForwardOptions& options = {.batch = 2}) {
  ModelConfig model =
      GptLite{.n_layer = 2, .n_embd = 12, .n_head = 3, .block_size = 4, .vocab_size = 11};
  model.set_fine_tuning({.groups = {}, .lora = lora});
  Program program;
  Builder builder(program, options);
  build_model(builder, model);
  return program;
}

const Parameter* parameter(const Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.parameters, name, &Parameter::name);
  return found == program.parameters.end() ? nullptr : &*found;
}

int64_t count(const Program& program, OpKind op) {
  return std::ranges::count(program.instructions, op, &Instruction::op);
}

}  // namespace

TEST_CASE("an adapter is two trained matrices in the unit of its weight, and the rest is frozen") {
  const Program program = adapted({.r = 3, .targets = {"out_proj"}});
  for (const Parameter& p : program.parameters) CHECK(p.frozen == !is_adapter(p.name));
  const Parameter* const weight = parameter(program, "blocks.1.attn.out_proj.weight");
  const Parameter* const a = parameter(program, "blocks.1.attn.out_proj.lora_A.weight");
  const Parameter* const b = parameter(program, "blocks.1.attn.out_proj.lora_B.weight");
  REQUIRE((weight && a && b));
  CHECK(a->shape == Shape{3, weight->shape[1]});
  CHECK(b->shape == Shape{weight->shape[0], 3});
  CHECK(a->unit == weight->unit);
  CHECK(b->sublayer == weight->sublayer);
  CHECK(a->init == Init::uniform);
  CHECK(a->init_scale == 1 / std::sqrt(static_cast<float>(weight->shape[1])));
  CHECK(b->init == Init::zeros);
  CHECK(parameter(program, "blocks.1.attn.qkv.lora_A.weight") == nullptr);
}

TEST_CASE("an adapter's part is scaled where it has r columns, and added to the product") {
  const LoraConfig lora{.r = 3, .alpha = 6, .targets = {"qkv"}};
  const Program program = adapted(lora), plain = adapted({.targets = {"none"}});
  CHECK(count(program, OpKind::linear) == count(plain, OpKind::linear) + 2 * 2);
  CHECK(count(program, OpKind::scale) == 2);
  CHECK(count(program, OpKind::add_dropout) == count(plain, OpKind::add_dropout) + 2);
  const auto scale = std::ranges::find(program.instructions, OpKind::scale, &Instruction::op);
  CHECK(attrs_as<ScaleAttrs>(scale->attrs).factor == 2);
  CHECK(program.at(scale->reads[0]).shape == Shape{8, 3});
  CHECK(count(program, OpKind::dropout_grad) == count(plain, OpKind::dropout_grad));
}

TEST_CASE("dropout is on what an adapter reads, in training alone") {
  LoraConfig lora{.targets = {"qkv", "fc"}};
  const auto with = [&lora](double dropout, bool training) {
    lora.dropout = dropout;
    return count(adapted(lora, {.batch = 2, .training = training}), OpKind::dropout_grad);
  };
  const int64_t plain = with(0, true);
  CHECK(with(0.5, true) == plain + 2 * 2);
  CHECK(with(0.5, false) == with(0, false));
}

TEST_CASE("an activation follows the adapter's sum") {
  const Program program = adapted({.targets = {"fc"}});
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    if (op.op != OpKind::linear) continue;
    CHECK(attrs_as<ActivationAttrs>(op.attrs).activation == Activation::none);
  }
  CHECK(count(program, OpKind::activation) == 2);
}

TEST_CASE(
    "weights of products in blocks are bytes that are unpacked, and the head is not in blocks") {
  const Program program =
      adapted({.r = 2, .targets = {"qkv", "lm_head"}, .base = BlockFormat::nf4});
  for (const Parameter& p : program.parameters) {
    const bool product = p.name.starts_with("blocks.") && p.shape.rank == 2 && p.frozen;
    INFO(p.name);
    CHECK((p.blocks == BlockFormat::nf4) == product);
    CHECK((program.at(p.value).dtype == DType::u8) == product);
  }
  CHECK(count(program, OpKind::unpack_weight) == 2 * 4);
  const auto unpack =
      std::ranges::find(program.instructions, OpKind::unpack_weight, &Instruction::op);
  CHECK(program.at(unpack->writes[0]).shape == Shape{36, 12});
  CHECK(attrs_as<UnpackAttrs>(unpack->attrs).format == BlockFormat::nf4);
}

TEST_CASE("a head with rows of padding has them in its adapter too") {
  ModelConfig model =
      GptLite{.n_layer = 1, .n_embd = 12, .n_head = 3, .block_size = 4, .vocab_size = 11};
  model.set_fine_tuning({.groups = {}, .lora = LoraConfig{.r = 2, .targets = {"lm_head"}}});
  Program program;
  Builder builder(program, {.row_multiple = 8});
  build_model(builder, model);
  const Parameter* const b = parameter(program, "lm_head.lora_B.weight");
  REQUIRE(b);
  CHECK(b->shape == Shape{11, 2});
  CHECK(program.at(b->value).shape == Shape{16, 2});
}
