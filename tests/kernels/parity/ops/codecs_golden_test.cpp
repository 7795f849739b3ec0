// Packed values and sums against the numpy model of tests/golden/make_codecs.py.
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

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
  std::vector<double> x = golden_values(0, 0, 130);
  if (name == "zeros") x.assign(x.size(), 0);
  if (name == "inf") x[70] = HUGE_VAL;
  if (name == "nan") x[3] = std::nan("");
  if (name == "denormals")
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = i < 64 ? 1e-40f : static_cast<float>(x[i]) * 1e-38f;
  return x;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text;
}

std::vector<double> bytes_of(const std::string& raw) {
  std::vector<double> list;
  for (const char c : raw) list.push_back(static_cast<uint8_t>(c));
  return list;
}

Guarded run_one(OpKind op, const OpAttrs& attrs, const Operand& in, const Operand& out) {
  Call call;
  call.op = op;
  call.attrs = attrs;
  return std::move(run_at_offset(call, {in}, {out}, 0)[0]);
}

// The sums of a rank's part, by the ops of quantize_gradients().
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

nlohmann::json golden() {
  return nlohmann::json::parse(std::ifstream(DSTRAIN_CODECS_GOLDEN));
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

}  // namespace dstrain::parity
