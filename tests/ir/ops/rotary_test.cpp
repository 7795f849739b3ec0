#include "runtime/ir/rotary.h"

#include "runtime/ir/builder/builder.h"
#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

namespace {

struct At {
  size_t pair;
  double frequency;
};

void check_frequencies(const RotaryAttrs& attrs, const std::vector<At>& expected) {
  REQUIRE(rotary_problem(attrs) == "");
  const std::vector<double> f = rotary_frequencies(attrs);
  REQUIRE(f.size() == static_cast<size_t>(attrs.head_size) / 2);
  const RotaryTurns turns = rotary_turns(attrs);
  for (const auto& [pair, frequency] : expected) {
    CAPTURE(pair);
    CHECK(f[pair] == Approx(frequency).epsilon(1e-13));
    CHECK(turns.of_pair[pair] == Approx(frequency / (2 * M_PI)).epsilon(1e-13));
  }
  CHECK(turns.scale == rotary_scale(attrs));
}

}  // namespace

// The numbers are those of transformers' formulas (modeling_rope_utils.py) in f64.
TEST_CASE("frequencies of each kind of rotary embedding") {
  check_frequencies({.head_size = 4}, {{0, 1}, {1, 0.01}});
  check_frequencies({.head_size = 4, .kind = RotaryKind::linear, .factor = 8},
                    {{0, 0.125}, {1, 0.00125}});
  check_frequencies({.head_size = 128,
                     .kind = RotaryKind::llama3,
                     .theta = 500000,
                     .factor = 8,
                     .original_positions = 8192},
                    {{0, 1},
                     {28, 0.003211445994752591},
                     {29, 0.002166570763503359},
                     {32, 0.0005248461609929547},
                     {35, 9.556212353964683e-05},
                     {63, 3.068925988914511e-07}});
  RotaryAttrs dynamic{.head_size = 64,
                      .seq_len = 4096,
                      .kind = RotaryKind::dynamic,
                      .factor = 2,
                      .original_positions = 2048};
  check_frequencies(
      dynamic,
      {{0, 1}, {1, 0.7237840223942559}, {16, 0.005672099864306926}, {31, 4.4450714405444134e-05}});
  dynamic.seq_len = 7;  // as long as in pretraining
  CHECK(rotary_frequencies(dynamic) == rotary_frequencies({.head_size = 64}));
  RotaryAttrs yarn{
      .head_size = 64, .kind = RotaryKind::yarn, .factor = 4, .original_positions = 2048};
  check_frequencies(yarn, {{7, 0.1333521432163324},
                           {8, 0.1},
                           {12, 0.024325212770525993},
                           {20, 0.0009730085108210397},
                           {31, 3.33380358040831e-05}});
  yarn.truncate = false;
  check_frequencies(yarn, {{12, 0.023870192321736323}, {20, 0.000811290381701431}});
}

TEST_CASE("a part of a head has the frequencies of a head of its size") {
  RotaryAttrs part{.head_size = 64, .rotated = 16, .theta = 100};
  CHECK(rotary_frequencies(part) == rotary_frequencies({.head_size = 16, .theta = 100}));
  part.kind = RotaryKind::yarn;
  part.factor = 4;
  part.original_positions = 2048;
  RotaryAttrs whole = part;
  whole.head_size = 16;
  whole.rotated = 0;
  CHECK(rotary_frequencies(part) == rotary_frequencies(whole));
}

TEST_CASE("yarn alone multiplies cos and sin") {
  CHECK(rotary_scale({.head_size = 64, .kind = RotaryKind::linear, .factor = 4}) == 1);
  RotaryAttrs yarn{
      .head_size = 64, .kind = RotaryKind::yarn, .factor = 4, .original_positions = 2048};
  CHECK(rotary_scale(yarn) == Approx(1.138629436111989).epsilon(1e-14));
  yarn.mscale = 1;
  CHECK(rotary_scale(yarn) == Approx(1.138629436111989).epsilon(1e-14));
  yarn.mscale_all_dim = 0.5;
  CHECK(rotary_scale(yarn) ==
        Approx((0.1 * std::log(4) + 1) / (0.05 * std::log(4) + 1)).epsilon(1e-14));
  yarn.attention_factor = 1.5;
  CHECK(rotary_scale(yarn) == 1.5);
  CHECK(rotary_scale(
            {.head_size = 64, .kind = RotaryKind::yarn, .factor = 1, .original_positions = 9}) ==
        1);
}

TEST_CASE("attributes of a rotary embedding that have no frequencies are refused") {
  const auto problem = [](const RotaryAttrs& attrs) { return std::string(rotary_problem(attrs)); };
  CHECK(problem({.head_size = 512}) == "");
  CHECK_THAT(problem({.head_size = 0}), Contains("even number"));
  CHECK_THAT(problem({.head_size = 7}), Contains("even number"));
  CHECK_THAT(problem({.head_size = 514}), Contains("at most 512"));
  CHECK(problem({.head_size = 515, .rotated = 6}) == "");
  CHECK_THAT(problem({.head_size = 8, .rotated = 5}), Contains("even number"));
  CHECK_THAT(problem({.head_size = 8, .rotated = 10}), Contains("more columns are rotated"));
  CHECK_THAT(problem({.head_size = 8, .sections = 2}), Contains("1 or 3 sections"));
  CHECK_THAT(problem({.head_size = 4, .theta = 0}), Contains("theta"));
  CHECK_THAT(problem({.head_size = 4, .kind = RotaryKind::linear, .factor = 0}),
             Contains("factor of longer samples"));
  CHECK_THAT(problem({.head_size = 4, .kind = RotaryKind::yarn, .factor = 2}),
             Contains("positions of pretraining"));
  CHECK_THAT(
      problem({.head_size = 2, .kind = RotaryKind::dynamic, .factor = 2, .original_positions = 9}),
      Contains("more than 2 columns"));
  CHECK_THAT(
      problem(
          {.head_size = 4, .kind = RotaryKind::dynamic, .factor = 0.5, .original_positions = 9}),
      Contains("below 1"));
  CHECK_THAT(problem({.head_size = 4,
                      .kind = RotaryKind::llama3,
                      .factor = 2,
                      .original_positions = 9,
                      .low_freq_factor = 4}),
             Contains("low_freq_factor"));
  CHECK_THAT(problem({.head_size = 4,
                      .kind = RotaryKind::yarn,
                      .factor = 2,
                      .original_positions = 9,
                      .beta_slow = 33}),
             Contains("beta_slow"));
  CHECK_THAT(problem({.head_size = 4,
                      .kind = RotaryKind::yarn,
                      .theta = 1,
                      .factor = 2,
                      .original_positions = 9}),
             Contains("theta of yarn"));
  CHECK_THAT(problem({.head_size = 4,
                      .kind = RotaryKind::yarn,
                      .factor = 2,
                      .original_positions = 9,
                      .attention_factor = -1}),
             Contains("attention_factor"));
}

TEST_CASE("rotary works on whole heads of whole samples") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::rotary,
                       .attrs = RotaryAttrs{.head_size = 4, .seq_len = 5},
                       .reads = {t.run({10, 12})},
                       .writes = {t.run({10, 12})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, {})), Contains("even number"));
  CHECK_THAT(t.refusal(with_attrs(op, RotaryAttrs{.head_size = 4, .seq_len = 4})),
             Contains("rows must divide into samples"));
  CHECK_THAT(t.refusal(with_attrs(op, RotaryAttrs{.head_size = 8, .seq_len = 5})),
             Contains("columns must divide into heads"));
  CHECK(t.refusal(with_attrs(op, RotaryAttrs{.head_size = 4, .sections = 3, .seq_len = 5})) == "");
  CHECK_THAT(t.refusal(with_attrs(op, RotaryAttrs{.head_size = 6, .sections = 3, .seq_len = 5})),
             Contains("columns must divide into heads"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({10, 12}))), Contains("120 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
  Instruction back = op;
  back.op = OpKind::rotary_grad;
  CHECK(t.refusal(with_write(back, 0, back.reads[0])) == "");
}

TEST_CASE("rotary's backward reads the gradient alone, and may overwrite it") {
  OneOp t;
  const Instruction op{.op = OpKind::rotary,
                       .attrs = RotaryAttrs{.head_size = 4, .seq_len = 5},
                       .reads = {t.parameter({10, 12})},
                       .writes = {t.run({10, 12})}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"rotary_grad"});
  const Instruction& back = t.program.instructions[0];
  CHECK(back.attrs == op.attrs);
  CHECK(back.reads == back.writes);
  CHECK(t.backward_ops(with_read(op, 0, t.run({10, 12}))).empty());
}

TEST_CASE("rotary and its backward read the documents") {
  OneOp t;
  const BufferId documents = t.buffer({2, 5}, DType::i32);
  const Instruction op{.op = OpKind::rotary,
                       .attrs = RotaryAttrs{.head_size = 4, .seq_len = 5},
                       .reads = {t.parameter({10, 12}), documents},
                       .writes = {t.run({10, 12})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({10}))), Contains("10 elements of i32"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({5}, DType::i32))),
             Contains("10 elements of i32"));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"rotary_grad"});
  const Instruction& back = t.program.instructions[0];
  CHECK(back.reads == std::vector<BufferId>{back.writes[0], documents});
}

TEST_CASE("the builder gives rotary the length of a sample") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  const BufferId x =
      b.linear(b.input("notes", InputRole::features, DType::f32, {5, 6}),
               b.parameter("w.weight", {12, 6}, Init::normal), kNone, Activation::none);
  const BufferId y = b.rotary(x, 5, {.head_size = 4, .theta = 7});
  CHECK(program.at(y).shape == Shape{10, 12});
  CHECK(program.instructions.back().attrs ==
        OpAttrs(RotaryAttrs{.head_size = 4, .seq_len = 5, .theta = 7}));
  CHECK_THROWS_WITH(b.rotary(x, 5, {.head_size = 3}), Contains("even number"));
}

TEST_CASE("rotary takes a part of the rows of whole samples, which its gradient has too") {
  OneOp t;
  const auto part = [](int64_t first, int64_t all) {
    return RotaryAttrs{.head_size = 4, .seq_len = 5, .part = {first, all}};
  };
  const Instruction op{.op = OpKind::rotary,
                       .attrs = part(3, 10),
                       .reads = {t.parameter({4, 12}), t.buffer({4}, DType::i32)},
                       .writes = {t.run({4, 12})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, part(7, 10))), Contains("into samples"));
  CHECK_THAT(t.refusal(with_attrs(op, part(3, 9))), Contains("into samples"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({10}, DType::i32))),
             Contains("4 elements of i32"));
  CHECK(t.backward_ops(op) == std::vector<std::string>{"rotary_grad"});
  CHECK(t.program.instructions[0].attrs == op.attrs);
}
