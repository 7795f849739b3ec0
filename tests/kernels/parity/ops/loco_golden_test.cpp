// Gradients in int4 with error feedback (LoCo) against the numpy model of tests/golden/codecs/make_loco.py.
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/packed_bytes.h"
#include "tests/support/source_file.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;
using nlohmann::json;

// Values of a rank in a step, as make_loco.py has them.
Values loco_values(int64_t rank, int64_t step, int64_t n, const std::string& kind) {
  Values x;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t whole = ((i + 1) * 7919 + rank * 104729 + step * 1299709) % 20011 - 10005;
    const auto power = static_cast<int>(8 + (i / 64 + rank) % 7 + (kind == "small" ? 125 : 0));
    const bool zero = kind == "zeros" && i % 3 == 0;
    x.push_back(zero ? 0 : static_cast<float>(std::ldexp(static_cast<double>(whole), -power)));
  }
  if (kind == "inf" && step == 2 && rank == 0) x[static_cast<size_t>(n / 2)] = HUGE_VAL;
  return x;
}

std::string raw_part(const std::string& raw, int64_t part, int64_t bytes) {
  return raw.substr(static_cast<size_t>(part * bytes), static_cast<size_t>(bytes));
}

// The exchange of gradients over several steps, by the ops of Int4Gradients.
class FeedbackExchange {
 public:
  FeedbackExchange(int64_t ranks, int64_t group, int64_t part, float loss_scale)
      : ranks_(ranks), group_(group), hosts_(ranks / group), part_(part) {
    state_.loss_scale = loss_scale;
    const auto zeros = [&](int64_t parts) {
      return std::vector<std::string>(
          static_cast<size_t>(ranks),
          std::string(static_cast<size_t>(parts * quantized_bytes(part)), '\0'));
    };
    send_errors_ = zeros(ranks);
    sum_errors_ = zeros(hosts_);
  }

  void check_step(int64_t step, const std::string& kind, const json& expected) {
    state_.applied_steps = step;
    std::vector<std::string> sent, forward;
    for (int64_t r = 0; r < ranks_; ++r) {
      const auto at = static_cast<size_t>(r);
      const int64_t n = ranks_ * part_;
      sent.push_back(pack(OpKind::quantize_int4,
                          {Shape{n}, DType::f32, loco_values(r, step, n, kind)}, ranks_,
                          send_errors_[at]));
      CHECK(crc_in_order(sent.back()) == expected["sent"][at]);
      CHECK(crc32(send_errors_[at]) == expected["send_error"][at]);
    }
    if (group_ > 1) {
      for (int64_t r = 0; r < ranks_; ++r) {
        const auto at = static_cast<size_t>(r);
        std::string received;
        for (int64_t i = 0; i < group_; ++i)
          received += raw_part(sent[static_cast<size_t>(r / group_ * group_ + i)], r % group_,
                               hosts_ * int4_bytes(part_));
        forward.push_back(pack(OpKind::requantize_int4,
                               packed_of({group_, hosts_, int4_bytes(part_)}, received), hosts_,
                               sum_errors_[at]));
        CHECK(crc32(forward.back()) == expected["forward"][at]);
        CHECK(crc32(sum_errors_[at]) == expected["sum_error"][at]);
      }
    }
    if (expected.contains("sums"))
      for (int64_t owner = 0; owner < ranks_; ++owner)
        CHECK(crc32(sum_of(owner, sent, forward)) == expected["sums"][static_cast<size_t>(owner)]);
  }

 private:
  // Returns the CRC-32 of the sent parts, in the order of their owners.
  uint32_t crc_in_order(const std::string& sent) const {
    std::string raw;
    for (int64_t p = 0; p < ranks_; ++p)
      raw += raw_part(sent, p % group_ * hosts_ + p / group_, int4_bytes(part_));
    return crc32(raw);
  }
  std::string pack(OpKind op, const Operand& values, int64_t parts, std::string& error) const {
    Call call;
    call.op = op;
    call.state = &state_;
    call.attrs = Int4Attrs{.part = part_, .group = group_, .error_beta = 0.8f, .error_steps = 3};
    const Shape errors{parts, quantized_bytes(part_)};
    const auto out =
        run_everywhere(call, {values, packed_of(errors, error)},
                       {{Shape{parts, int4_bytes(part_)}, DType::u8}, {errors, DType::u8}});
    error = out[1].raw();
    return out[0].raw();
  }
  std::string sum_of(int64_t owner, const std::vector<std::string>& sent,
                     const std::vector<std::string>& forward) const {
    const int64_t bytes = int4_bytes(part_), senders = group_ > 1 ? hosts_ : ranks_;
    std::string received;
    for (int64_t s = 0; s < senders; ++s)
      received += group_ > 1 ? raw_part(forward[static_cast<size_t>(s * group_ + owner % group_)],
                                        owner / group_, bytes)
                             : raw_part(sent[static_cast<size_t>(s)], owner, bytes);
    Call call;
    call.op = OpKind::sum_int4;
    call.attrs = Int4Attrs{.part = part_};
    return run_everywhere(call, {packed_of({senders, 1, bytes}, received)},
                          {{Shape{part_}, DType::f32}})[0]
        .raw();
  }

  int64_t ranks_, group_, hosts_, part_;
  StepState state_;
  std::vector<std::string> send_errors_, sum_errors_;
};

}  // namespace

TEST_CASE(
    "gradients in int4 with error feedback, and their errors, have the bits of the numpy model") {
  const auto cases = json::parse(std::ifstream(source_file("tests/golden/codecs/loco.json")));
  REQUIRE(cases.size() == 72);
  Sample sample = sample_if_emulated(3);
  for (const auto& c : cases) {
    if (!sample.takes()) continue;
    FeedbackExchange exchange(c["ranks"], c["group"], c["part"], c["loss_scale"]);
    REQUIRE(c["steps"].size() == 5);
    for (int64_t step = 0; step < 5; ++step) {
      INFO(c["ranks"] << " ranks in groups of " << c["group"] << ", parts of " << c["part"] << ", "
                      << c["kind"] << ", loss scale " << c["loss_scale"] << ", step " << step);
      exchange.check_step(step, c["kind"], c["steps"][static_cast<size_t>(step)]);
    }
  }
}

TEST_CASE("error feedback: the next micro-batch goes on from what the one before it lost") {
  const int64_t n = 300;
  StepState state;
  state.applied_steps = 7;  // not the beginning
  Call call{OpKind::quantize_int4};
  call.state = &state;
  const Shape errors{1, quantized_bytes(n)}, packed{1, int4_bytes(n)};
  for (const DType dtype : kRunTypes) {
    call.attrs = Int4Attrs{.part = n, .error_beta = 0.5f, .error_steps = 7};
    const Operand x{Shape{n}, dtype, rounded(normal_values(n, 1), dtype)};
    const Operand nothing{errors, DType::u8, Values(static_cast<size_t>(errors.elements()), 0)};
    const auto first =
        run_everywhere(call, {x, nothing}, {{packed, DType::u8}, {errors, DType::u8}});
    const Operand kept{errors, DType::u8, bytes_of(first[1].raw())};
    // In a step that begins anew the error before does not count.
    CHECK(run_everywhere(call, {x, kept}, {{packed, DType::u8}, {errors, DType::u8}})[1].raw() ==
          first[1].raw());
    // The second micro-batch has the bits of a step that begins with the error, and does not read it.
    call.attrs = Int4Attrs{.part = n, .error_beta = 0.5f, .error_steps = 8};
    const auto expected =
        run_everywhere(call, {x, kept}, {{packed, DType::u8}, {errors, DType::u8}});
    CHECK(expected[0].raw() != first[0].raw());
    call.accumulate = true;
    const auto second = run_everywhere(call, {x, nothing}, {{packed, DType::u8}, kept});
    call.accumulate = false;
    for (size_t i = 0; i < 2; ++i) CHECK(second[i].raw() == expected[i].raw());
  }
}

TEST_CASE("error feedback: what 64 steps add up to is near what they should, and without is not") {
  const int64_t n = 512;
  Values x = rounded(normal_values(n, 1), DType::f32),
         kept(static_cast<size_t>(quantized_bytes(n)), 0);
  StepState state;
  const auto lost_after = [&](bool feedback) {
    Values total(x.size(), 0);
    for (int64_t step = 0; step < 64; ++step) {
      state.applied_steps = step;
      Call call{OpKind::quantize_int4};
      call.state = &state;
      call.attrs = Int4Attrs{.part = n, .error_beta = 0.8f, .error_steps = 1024};
      std::vector<Operand> in{{Shape{n}, DType::f32, x}}, out{{Shape{1, int4_bytes(n)}, DType::u8}};
      if (feedback) {
        in.push_back({Shape{1, quantized_bytes(n)}, DType::u8, kept});
        out.push_back({Shape{1, quantized_bytes(n)}, DType::u8});
      }
      const auto packed = run_at_offset(call, in, out, 0);
      if (feedback) kept = bytes_of(packed[1].raw());
      Call sum{OpKind::sum_int4};
      sum.attrs = Int4Attrs{.part = n};
      const Values back = run_at_offset(sum, {packed_of({1, 1, int4_bytes(n)}, packed[0].raw())},
                                        {{Shape{n}, DType::f32}}, 0)[0]
                              .values();
      for (size_t i = 0; i < total.size(); ++i) total[i] += back[i] - x[i];
    }
    double squares = 0, whole = 0;
    for (size_t i = 0; i < total.size(); ++i) {
      squares += total[i] * total[i];
      whole += 64 * 64 * x[i] * x[i];
    }
    return std::sqrt(squares / whole);
  };
  const double without = lost_after(false), with = lost_after(true);
  CAPTURE(with, without);
  CHECK(without > 0.07);
  CHECK(with < 0.6 * without);
}

TEST_CASE("commit_state copies bytes, unless the step is skipped") {
  for (const int64_t n : {1, 15, 16, 300, 5000}) {
    StepState state;
    Call call{OpKind::commit_state};
    call.state = &state;
    const Operand next{Shape{n}, DType::u8, integer_values(n, 1, 0, 256)};
    const Operand before{Shape{n}, DType::u8, integer_values(n, 2, 0, 256)};
    CHECK(run_everywhere(call, {next}, {before})[0].values() == next.values);
    state.skip = 1;
    CHECK(run_everywhere(call, {next}, {before})[0].values() == before.values);
  }
}

}  // namespace dstrain::parity
