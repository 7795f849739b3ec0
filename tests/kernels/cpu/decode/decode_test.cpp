// The operations of plans that generate text, against their definitions in fp64; and that a row's bits are its own.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_library.h"
#include "runtime/ir/slots.h"

namespace dstrain {
namespace {

template <class T>
struct Operand {
  std::vector<T> values;
  Shape shape;
  DType dtype;

  Operand(const Shape& of, DType type)
      : values(static_cast<size_t>(of.elements())), shape(of), dtype(type) {}
  Tensor tensor() { return {values.data(), shape, dtype}; }
};
using Floats = Operand<float>;
using Integers = Operand<int32_t>;

Floats random_floats(const Shape& shape, uint32_t seed) {
  Floats x(shape, DType::f32);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& value : x.values) value = normal(random);
  return x;
}

void run(OpKind op, const OpAttrs& attrs, std::vector<Tensor> in, std::vector<Tensor> out,
         int threads) {
  std::vector<TensorSpec> in_specs, out_specs;
  for (const Tensor& t : in)
    in_specs.push_back(t.data ? TensorSpec{t.shape, t.dtype} : TensorSpec{});
  for (const Tensor& t : out) out_specs.push_back({t.shape, t.dtype});
  const auto library = make_cpu_library();
  const KernelSpec spec{op, attrs, in_specs, out_specs, threads};
  std::vector<std::byte> scratch(static_cast<size_t>(library->workspace_bytes(spec)));
  const Tensor workspace{scratch.data(), {static_cast<int64_t>(scratch.size())}, DType::u8};
  library->make(spec)->run({.in = in, .out = out, .workspace = workspace});
}

// A weight in some dtype, and its values in f32.
struct Weight {
  std::vector<uint16_t> bits;
  Floats values;
  DType dtype;

  Weight(const Shape& shape, DType type) : values(random_floats(shape, 5)), dtype(type) {
    for (float& value : values.values) {
      if (dtype == DType::bf16) {
        const bf16 rounded = from_float<bf16>(value);
        bits.push_back(rounded.bits);
        value = to_float(rounded);
      } else if (dtype == DType::f16) {
        const f16 rounded = from_float<f16>(value);
        bits.push_back(rounded.bits);
        value = to_float(rounded);
      }
    }
  }
  Tensor tensor() {
    if (dtype == DType::f32) return values.tensor();
    return {bits.data(), values.shape, dtype};
  }
};

TEST_CASE("row_linear: products of rows, of weights of any dtype, with biases and relu") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [r, k, n] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {1, 33, 7}, {5, 48, 9}, {9, 130, 21}}) {
      CAPTURE(name_of(dtype), r, k, n);
      Floats x = random_floats({r, k}, 1), bias = random_floats({n}, 2), y({r, n}, DType::f32);
      Weight weight({n, k}, dtype);
      for (const bool relu : {false, true}) {
        const ActivationAttrs attrs{relu ? Activation::relu : Activation::none};
        run(OpKind::row_linear, attrs, {x.tensor(), weight.tensor(), bias.tensor()}, {y.tensor()},
            2);
        for (int64_t i = 0; i < r; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = bias.values[static_cast<size_t>(j)];
            for (int64_t c = 0; c < k; ++c)
              sum += double{x.values[static_cast<size_t>(i * k + c)]} *
                     weight.values.values[static_cast<size_t>(j * k + c)];
            if (relu) sum = std::max(sum, 0.0);
            CHECK(y.values[static_cast<size_t>(i * n + j)] == Approx(sum).margin(2e-5));
          }
      }
    }
}

TEST_CASE("row_linear: a row has the same bits whatever rows there are, on any number of threads") {
  const int64_t k = 200, n = 77;
  Floats all = random_floats({9, k}, 1), y({9, n}, DType::f32);
  Weight weight({n, k}, DType::bf16);
  run(OpKind::row_linear, {}, {all.tensor(), weight.tensor()}, {y.tensor()}, 3);
  for (int64_t r = 0; r < 9; ++r) {
    Floats one({1, n}, DType::f32);
    const Tensor row{all.values.data() + r * k, {1, k}, DType::f32};
    run(OpKind::row_linear, {}, {row, weight.tensor()}, {one.tensor()}, 1);
    CHECK(std::equal(one.values.begin(), one.values.end(), y.values.begin() + r * n, same_bits));
  }
}

TEST_CASE("grouped_row_linear: each row has the bits of row_linear with its expert's weight") {
  const int64_t k = 130, n = 21, rows = 9;
  const std::vector<int32_t> ends{0, 4, 4, 9};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Floats x = random_floats({rows, k}, 1), y({rows, n}, DType::f32);
    const auto experts = static_cast<int64_t>(ends.size());
    Weight weight({experts * n, k}, dtype);
    std::vector<int32_t> held = ends;
    run(OpKind::grouped_row_linear, {},
        {x.tensor(), weight.tensor(), {held.data(), {experts}, DType::i32}}, {y.tensor()}, 2);
    for (int64_t r = 0; r < rows; ++r) {
      const auto expert = std::ranges::upper_bound(ends, static_cast<int32_t>(r)) - ends.begin();
      Floats one({1, n}, DType::f32);
      Tensor own = weight.tensor();
      own.data = own.as<char>() + expert * n * k * size_of(dtype);
      own.shape = {n, k};
      run(OpKind::row_linear, {}, {{x.values.data() + r * k, {1, k}, DType::f32}, own},
          {one.tensor()}, 1);
      CHECK(std::equal(one.values.begin(), one.values.end(), y.values.begin() + r * n, same_bits));
    }
  }
}

// Rows of tokens: the slot and the position of each.
struct TokenRow {
  int32_t slot, position;
};

struct Attention {
  AttentionAttrs attrs;
  int64_t size;
  bool joined;

  int64_t kv_heads() const { return attrs.kv_heads > 0 ? attrs.kv_heads : attrs.heads; }
  int64_t width() const { return attrs.heads * size; }
  int64_t all() const { return width() + 2 * kv_heads() * size; }
};

struct SlotMemory {
  Floats keys, values;
  SlotMemory(const Attention& a, int64_t slots)
      : keys({slots, a.kv_heads(), positions_in_memory(a.attrs.seq_len) * a.size}, DType::f32),
        values(keys) {}
};

// Values of queries, keys and values of every token of every slot, and what attention runs over.
class Tokens {
 public:
  Tokens(const Attention& a, int64_t slots)
      : a_(a), qkv_(random_floats({slots, a.attrs.seq_len, a.all()}, 3)) {}

  const float* of(const TokenRow& t) const {
    return qkv_.values.data() + (t.slot * a_.attrs.seq_len + t.position) * a_.all();
  }

  std::vector<float> run_rows(const std::vector<TokenRow>& tokens, SlotMemory& memory,
                              int threads) const {
    const auto r = static_cast<int64_t>(tokens.size());
    const int64_t kv = a_.kv_heads() * a_.size;
    Floats joined({r, a_.all()}, DType::f32), q({r, a_.width()}, DType::f32),
        k({r, kv}, DType::f32), v({r, kv}, DType::f32), y({r, a_.width()}, DType::f32);
    Integers documents({r}, DType::i32), slots({r}, DType::i32);
    for (int64_t i = 0; i < r; ++i) {
      const TokenRow token = tokens[static_cast<size_t>(i)];
      documents.values[static_cast<size_t>(i)] = -token.position;
      slots.values[static_cast<size_t>(i)] = token.slot;
      if (token.slot < 0) continue;
      const float* from = of(token);
      std::copy_n(from, a_.all(), joined.values.data() + i * a_.all());
      std::copy_n(from, a_.width(), q.values.data() + i * a_.width());
      std::copy_n(from + a_.width(), kv, k.values.data() + i * kv);
      std::copy_n(from + a_.width() + kv, kv, v.values.data() + i * kv);
    }
    std::vector<Tensor> in{joined.tensor()};
    if (!a_.joined) in = {q.tensor(), k.tensor(), v.tensor()};
    in.push_back(documents.tensor());
    in.push_back(slots.tensor());
    run(OpKind::cached_attention, a_.attrs, in,
        {y.tensor(), memory.keys.tensor(), memory.values.tensor()}, threads);
    return y.values;
  }

  // Returns y of a token by the definition.
  std::vector<double> defined(const TokenRow& token) const {
    std::vector<double> y(static_cast<size_t>(a_.width()));
    const int64_t first =
        a_.attrs.window > 0 ? std::max<int64_t>(0, token.position - a_.attrs.window + 1) : 0;
    for (int64_t h = 0; h < a_.attrs.heads; ++h) {
      const int64_t group = h / (a_.attrs.heads / a_.kv_heads());
      std::vector<double> weights;
      double total = 0;
      for (int64_t j = first; j <= token.position; ++j) {
        const float* const key =
            of({token.slot, static_cast<int32_t>(j)}) + a_.width() + group * a_.size;
        double score = 0;
        for (int64_t d = 0; d < a_.size; ++d) score += double{of(token)[h * a_.size + d]} * key[d];
        score *= a_.attrs.scale > 0 ? a_.attrs.scale : 1 / std::sqrt(static_cast<double>(a_.size));
        if (a_.attrs.softcap > 0) score = a_.attrs.softcap * std::tanh(score / a_.attrs.softcap);
        weights.push_back(std::exp(score));
        total += weights.back();
      }
      for (int64_t j = first; j <= token.position; ++j) {
        const float* const value = of({token.slot, static_cast<int32_t>(j)}) + a_.width() +
                                   (a_.kv_heads() + group) * a_.size;
        for (int64_t d = 0; d < a_.size; ++d)
          y[static_cast<size_t>(h * a_.size + d)] +=
              weights[static_cast<size_t>(j - first)] / total * value[d];
      }
    }
    return y;
  }

 private:
  Attention a_;
  Floats qkv_;
};

const std::vector<Attention>& attentions() {
  static const std::vector<Attention> all{
      {{.heads = 2, .seq_len = 37}, 6, true},
      {{.heads = 4, .seq_len = 37, .kv_heads = 2, .scale = 0.3, .softcap = 2}, 20, false},
      {{.heads = 3, .seq_len = 90, .kv_heads = 1, .window = 19}, 80, false},
      {{.heads = 2, .seq_len = 90, .window = 1}, 16, true}};
  return all;
}

TEST_CASE(
    "cached_attention: each row sees the earlier positions of its slot, or a window of them") {
  for (const Attention& a : attentions()) {
    CAPTURE(a.size, a.attrs.window);
    const Tokens tokens(a, 3);
    SlotMemory memory(a, 3);
    for (int32_t position = 0; position < a.attrs.seq_len; ++position) {
      // Slot 1 lags behind, and a row is idle.
      std::vector<TokenRow> rows{{2, position}, {-1, 0}, {0, position}};
      if (position >= 5) rows.push_back({1, position - 5});
      const std::vector<float> y = tokens.run_rows(rows, memory, 2);
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::vector<double> expected =
            rows[i].slot < 0 ? std::vector<double>(static_cast<size_t>(a.width()))
                             : tokens.defined(rows[i]);
        double error = 0;
        for (size_t c = 0; c < expected.size(); ++c)
          error = std::max(error, std::abs(expected[c] - y[i * expected.size() + c]));
        CHECK(error < 2e-5);
      }
    }
  }
}

TEST_CASE("cached_attention: a row has the same bits whether positions come together or alone") {
  for (const Attention& a : attentions()) {
    const Tokens tokens(a, 2);
    SlotMemory together(a, 2), alone(a, 2);
    std::vector<TokenRow> rows;
    for (int32_t position = 0; position < a.attrs.seq_len; ++position) {
      rows.push_back({1, position});
      rows.push_back({0, position});
    }
    const std::vector<float> all = tokens.run_rows(rows, together, 3);
    const auto width = static_cast<size_t>(a.width());
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::vector<float> one = tokens.run_rows({rows[i]}, alone, 1);
      REQUIRE(std::equal(one.data(), one.data() + width, all.data() + i * width, same_bits));
    }
  }
}

}  // namespace
}  // namespace dstrain
