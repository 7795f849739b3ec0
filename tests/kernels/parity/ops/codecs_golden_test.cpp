// Packed values and sums against the numpy model of tests/golden/codecs/make_codecs.py.
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/packed_bytes.h"
#include "tests/support/source_file.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

std::vector<double> golden_values(int64_t rank, int64_t step, int64_t n) {
  std::vector<double> x;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t whole = ((i + 1) * 7919 + rank * 104729 + step * 1299709) % 20011 - 10005;
    x.push_back(std::ldexp(static_cast<double>(whole), -static_cast<int>(8 + (i / 64 + rank) % 7)));
  }
  return x;
}

std::vector<double> values_named(const std::string& name) {
  if (std::isdigit(name[0])) return golden_values(0, 0, std::stoll(name));
  std::vector<double> x = golden_values(0, 0, 260);
  if (name == "zeros") x.assign(x.size(), 0);
  if (name == "inf") x[170] = HUGE_VAL;
  if (name == "nan") x[3] = std::nan("");
  if (name == "denormals")
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = i < 128 ? 1e-40f : static_cast<float>(x[i]) * 1e-38f;
  return x;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text;
}

Guarded run_one(OpKind op, const OpAttrs& attrs, const Operand& in, const Operand& out) {
  Call call;
  call.op = op;
  call.attrs = attrs;
  return std::move(run_at_offset(call, {in}, {out}, 0)[0]);
}

// The sums of a rank's part, by the ops of Int4Gradients.
std::string sum_of(int64_t ranks, int64_t group, int64_t part, int64_t step, int64_t owner) {
  const Int4Attrs attrs{.part = part, .group = group};
  const int64_t bytes = int4_bytes(part), hosts = ranks / group, mine = owner % group;
  const auto sent = [&](int64_t rank) {
    return run_one(OpKind::quantize_int4, attrs,
                   {Shape{ranks * part}, DType::f32, golden_values(rank, step, ranks * part)},
                   {Shape{ranks, bytes}, DType::u8})
        .raw();
  };
  // What rank `number` of `senders` gets of each: `parts` packed parts.
  const auto exchanged = [&](const std::vector<std::string>& senders, int64_t number,
                             int64_t parts) {
    std::string all;
    for (const std::string& raw : senders)
      all += raw.substr(static_cast<size_t>(number * parts * bytes),
                        static_cast<size_t>(parts * bytes));
    return Operand{Shape{static_cast<int64_t>(senders.size()), parts, bytes}, DType::u8,
                   bytes_of(all)};
  };
  std::vector<std::string> last;
  if (group == 1) {
    for (int64_t r = 0; r < ranks; ++r) last.push_back(sent(r));
  } else {
    for (int64_t host = 0; host < hosts; ++host) {
      std::vector<std::string> first;
      for (int64_t i = 0; i < group; ++i) first.push_back(sent(host * group + i));
      last.push_back(run_one(OpKind::requantize_int4, Int4Attrs{.part = part},
                             exchanged(first, mine, hosts), {Shape{hosts, bytes}, DType::u8})
                         .raw());
    }
  }
  return run_one(OpKind::sum_int4, Int4Attrs{.part = part},
                 exchanged(last, group == 1 ? owner : owner / group, 1), {Shape{part}, DType::f32})
      .raw();
}

// A matrix and its factors, on ranks that are one after another: the ops of power_sgd().
class Factors {
 public:
  Factors(int64_t ranks, int64_t rows, int64_t columns, int64_t rank)
      : ranks_(ranks), rows_(rows), columns_(columns), rank_(rank) {
    q_ = golden_values(9, 0, rank * columns);
    errors.assign(static_cast<size_t>(ranks), Values(static_cast<size_t>(rows * columns)));
  }

  // Returns the sum over ranks of `gradients`, and replaces the errors.
  Values sum(std::vector<Values> gradients) {
    const Shape matrix{rows_, columns_}, p_shape{rank_, rows_}, q_shape{rank_, columns_};
    StepState state;
    q_ = in_place(OpKind::gram_schmidt, GramSchmidtAttrs{.revive = true}, q_shape, q_);
    Values p(static_cast<size_t>(rank_ * rows_)), q(q_.size());
    for (size_t r = 0; r < gradients.size(); ++r) {
      Call add{OpKind::add_error};
      add.state = &state;
      gradients[r] = run_at_offset(add, {{matrix, DType::f32, errors[r]}},
                                   {{matrix, DType::f32, gradients[r]}}, 0)[0]
                         .values();
      add_to(p, project(OpKind::project_rows, gradients[r], {q_shape, DType::f32, q_}, p_shape));
    }
    p = in_place(OpKind::gram_schmidt, GramSchmidtAttrs{}, p_shape, p);
    for (const Values& g : gradients)
      add_to(q, project(OpKind::project_columns, g, {p_shape, DType::f32, p}, q_shape));
    q_ = q;
    Values whole;
    for (size_t r = 0; r < gradients.size(); ++r) {
      Call expand{OpKind::expand_factors};
      expand.attrs = ExpandAttrs{.ranks = ranks_};
      const std::vector<Guarded> out = run_at_offset(
          expand,
          {{p_shape, DType::f32, p}, {q_shape, DType::f32, q_}, {matrix, DType::f32, gradients[r]}},
          {{matrix, DType::f32, {}, 2}, {matrix, DType::f32}}, 0);
      whole = out[0].values();
      errors[r] = out[1].values();
    }
    return whole;
  }

  std::vector<Values> errors;

 private:
  static void add_to(Values& sum, const Values& values) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<float>(sum[i] + values[i]);
  }
  static Values in_place(OpKind op, const OpAttrs& attrs, Shape shape, const Values& x) {
    Call call{op};
    call.attrs = attrs;
    return run_at_offset(call, {{shape, DType::f32, x}}, {{shape, DType::f32, {}, 0}}, 0)[0]
        .values();
  }
  Values project(OpKind op, const Values& g, const Operand& factor, Shape to) const {
    return run_at_offset({op}, {{{rows_, columns_}, DType::f32, g}, factor}, {{to, DType::f32}},
                         0)[0]
        .values();
  }

  const int64_t ranks_, rows_, columns_, rank_;
  Values q_;
};

double length_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

nlohmann::json golden() {
  return nlohmann::json::parse(std::ifstream(source_file("tests/golden/codecs/codecs.json")));
}

}  // namespace

TEST_CASE("values are packed to the bytes of the numpy model") {
  const nlohmann::json all = golden();
  REQUIRE(all["packed"].size() == 9);
  for (const auto& c : all["packed"]) {
    CAPTURE(c["values"]);
    const std::vector<double> x = values_named(c["values"]);
    const auto n = static_cast<int64_t>(x.size());
    const Operand in{Shape{n}, DType::f32, x};
    CHECK(hex(run_one(OpKind::quantize, {}, in, {Shape{quantized_bytes(n)}, DType::u8}).raw()) ==
          c["int8"].get<std::string>());
    CHECK(hex(run_one(OpKind::quantize_int4, Int4Attrs{.part = n}, in,
                      {Shape{1, int4_bytes(n)}, DType::u8})
                  .raw()) == c["int4"].get<std::string>());
  }
}

TEST_CASE("gradients in int4 add up to those of the numpy model, in one hop and in two") {
  const nlohmann::json all = golden();
  REQUIRE(all["sums"].size() == 25);
  for (const auto& c : all["sums"]) {
    const int64_t ranks = c["ranks"], group = c["group"], part = c["part"], step = c["step"];
    INFO(ranks << " ranks in groups of " << group << ", step " << step);
    for (int64_t owner = 0; owner < ranks; ++owner)
      CHECK(hex(sum_of(ranks, group, part, step, owner)) ==
            c["sums"][static_cast<size_t>(owner)].get<std::string>());
  }
}

TEST_CASE("PowerSGD over five steps is that of the numpy model within 1e-4 of the sum's length") {
  const nlohmann::json all = golden();
  REQUIRE(all["power_sgd"].size() == 19);
  Sample sample = sample_if_emulated(3);
  for (const auto& c : all["power_sgd"]) {
    if (!sample.takes()) continue;
    const int64_t ranks = c["ranks"], rows = c["rows"], columns = c["columns"], rank = c["rank"];
    CAPTURE(ranks, rows, columns, rank);
    Factors factors(ranks, rows, columns, rank);
    const int64_t n = rows * columns;
    for (int64_t step = 0; step < 5; ++step) {
      CAPTURE(step);
      std::vector<std::vector<double>> gradients;
      for (int64_t r = 0; r < ranks; ++r)
        gradients.push_back(c["zeros"].get<bool>() ? std::vector<double>(static_cast<size_t>(n))
                                                   : golden_values(r, step, n));
      const std::vector<double> sum = factors.sum(std::move(gradients));
      const auto& expected = c["steps"][static_cast<size_t>(step)];
      const double length = expected["sum"];
      CHECK(std::fabs(length_of(sum) - length) <= 1e-4 * length);
      int64_t at = 0;
      for (const double element : expected["elements"]) {
        CHECK(std::fabs(sum[static_cast<size_t>(at)] - element) <= 1e-4 * length);
        at += std::max<int64_t>(1, n / 5);
      }
      for (size_t r = 0; r < factors.errors.size(); ++r)
        CHECK(std::fabs(length_of(factors.errors[r]) - expected["errors"][r].get<double>()) <=
              1e-4 * (length + expected["errors"][r].get<double>()));
    }
  }
}

}  // namespace dstrain::parity
