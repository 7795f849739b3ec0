#include "runtime/engine/forward/teacher_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "runtime/core/dtype.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/teacher/teacher_file.h"

namespace dstrain {
namespace {

// A token and its logit. The better ones are first in order.
struct Candidate {
  float logit;
  uint32_t id;
  bool operator<(const Candidate& other) const {
    return logit > other.logit || (logit == other.logit && id < other.id);
  }
};

// Leaves the best candidates of a row, in order.
void find_best(std::span<const float> logits, std::vector<Candidate>& best) {
  const size_t k = best.size();
  best.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate next{logits[i], static_cast<uint32_t>(i)};
    if (best.size() == k) {
      if (!(next < best.front())) continue;
      std::pop_heap(best.begin(), best.end());
      best.back() = next;
    } else {
      best.push_back(next);
    }
    std::push_heap(best.begin(), best.end());
  }
  std::sort_heap(best.begin(), best.end());
}

// Writes the values of a token. The logarithm of the sum of exponentials is found in fp64.
void write_token(std::span<const float> logits, std::vector<Candidate>& best, std::byte* to) {
  find_best(logits, best);
  const auto top = static_cast<double>(best.front().logit);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  const double log_sum = std::log(sum) + top;
  std::byte* halves = to + sizeof(uint32_t) * best.size();
  for (const Candidate& c : best) {
    std::memcpy(to, &c.id, sizeof(c.id));
    to += sizeof(c.id);
    const f16 log_prob = to_f16(static_cast<float>(static_cast<double>(c.logit) - log_sum));
    std::memcpy(halves, &log_prob.bits, sizeof(log_prob.bits));
    halves += sizeof(log_prob.bits);
  }
}

// Says of tokens [begin, end) that no teacher was asked.
void write_none(int64_t begin, int64_t end, int64_t top_k, const WriteTeacher& write) {
  constexpr int64_t kAtOnce = 4096;
  const auto bytes = static_cast<size_t>(teacher_bytes(top_k));
  std::vector<std::byte> values;
  const uint16_t none = to_f16(-std::numeric_limits<float>::infinity()).bits;
  for (int64_t at = begin; at < end; at += kAtOnce) {
    const auto count = static_cast<size_t>(std::min(kAtOnce, end - at));
    values.assign(count * bytes, std::byte{0});
    for (size_t t = 0; t < count; ++t)
      for (size_t i = 0; i < static_cast<size_t>(top_k); ++i)
        std::memcpy(values.data() + t * bytes + sizeof(uint32_t) * static_cast<size_t>(top_k) +
                        sizeof(none) * i,
                    &none, sizeof(none));
    write(values, at * teacher_bytes(top_k));
  }
}

// Says of all tokens that no sample has that no teacher was asked.
void write_untaught(const PackedSamples& samples, int64_t tokens, int64_t top_k,
                    const WriteTeacher& write) {
  std::vector<DocumentPart> parts;
  for (int64_t s = 0; s < samples.samples(); ++s)
    std::ranges::copy(samples.sample(s), std::back_inserter(parts));
  std::ranges::sort(parts, {}, &DocumentPart::begin);
  int64_t end = 0;
  for (const DocumentPart& part : parts) {
    write_none(end, part.begin, top_k, write);
    end = part.begin + part.tokens;
  }
  write_none(end, tokens, top_k, write);
}

// The values of the inputs of a forward pass over one sample.
class TeacherBatch {
 public:
  explicit TeacherBatch(const Program& program) {
    for (const ProgramInput& input : program.inputs) {
      const bool documents = input.role == InputRole::documents;
      check(documents || input.role == InputRole::token_ids, "a teacher reads {}",
            name_of(input.role));
      std::vector<int32_t>& values = documents ? documents_ : tokens_;
      values.resize(static_cast<size_t>(program.at(input.buffer).shape.elements()));
      inputs_.emplace_back(values);
    }
  }

  // Reads ranges, one behind the other. Returns how many tokens they have.
  int64_t read(const TokenSource& source, std::span<const DocumentPart> ranges) {
    check(ranges.size() == 1 || !documents_.empty(), "the model tells no documents apart");
    int32_t end = 0;
    for (const DocumentPart& range : ranges) {
      int32_t* const to = tokens_.data() + end;
      // The file may end with the last token, which has none behind it.
      targets_.resize(static_cast<size_t>(range.tokens) - 1);
      source.read(range.begin, range.tokens - 1, to, targets_.data());
      to[range.tokens - 1] = targets_.back();
      end = begin_document(end, range.tokens);
    }
    std::fill(tokens_.begin() + end, tokens_.end(), 0);
    begin_document(end, static_cast<int32_t>(tokens_.size()) - end);
    return end;
  }
  std::span<const std::span<const int32_t>> inputs() const { return inputs_; }

 private:
  // Returns where the document ends.
  int32_t begin_document(int32_t begin, int32_t tokens) {
    if (!documents_.empty()) std::fill_n(documents_.begin() + begin, tokens, begin);
    return begin + tokens;
  }

  std::vector<int32_t> tokens_, documents_, targets_;
  std::vector<std::span<const int32_t>> inputs_;  // in the order of the program
};

}  // namespace

std::vector<TokenRange> ranges_of_windows(int64_t tokens, int64_t length) {
  std::vector<TokenRange> ranges;
  for (int64_t begin = 0; begin + 1 < tokens; begin += length)
    ranges.push_back({begin, std::min(length, tokens - begin)});
  return ranges;
}

std::vector<TokenRange> ranges_of_documents(std::span<const int64_t> begins, int64_t length) {
  std::vector<TokenRange> ranges;
  for (size_t d = 0; d + 1 < begins.size(); ++d)
    if (begins[d + 1] - begins[d] > 1)
      ranges.push_back({begins[d], std::min(length, begins[d + 1] - begins[d])});
  return ranges;
}

PackedSamples samples_of(std::span<const TokenRange> ranges, int64_t length, bool several) {
  std::vector<DocumentPart> parts;
  for (const TokenRange& range : ranges)
    parts.push_back({.tokens = static_cast<int32_t>(range.count), .begin = range.begin});
  return {std::move(parts), static_cast<int32_t>(length), several};
}

void teach(ForwardModel& model, const TokenSource& source, const PackedSamples& samples,
           int64_t top_k, int64_t ids, const WriteTeacher& write,
           const std::function<void(int64_t done)>& on_sample) {
  check(top_k <= ids && model.program().logits != kNone, "a teacher of {} tokens gives {}", ids,
        top_k);
  write_untaught(samples, source.tokens(), top_k, write);
  TeacherBatch batch(model.program());
  const bool host = model.device().is_host();
  const auto bytes = static_cast<size_t>(teacher_bytes(top_k));
  std::vector<std::byte> values;
  for (int64_t s = 0; s < samples.samples(); ++s) {
    const std::span<const DocumentPart> ranges = samples.sample(s);
    const int64_t count = batch.read(source, ranges);
    StepState state;
    StepContext step{.state = &state, .inputs = batch.inputs()};
    model.run(step);
    values.resize(static_cast<size_t>(count) * bytes);
    const int64_t parts = host ? thread_count() : 1;
    run_parts(parts, [&](int64_t part) {
      std::vector<float> row(static_cast<size_t>(ids));
      std::vector<Candidate> best(static_cast<size_t>(top_k));
      for (int64_t r = count * part / parts; r < count * (part + 1) / parts; ++r) {
        model.read_logits(r, row);
        write_token(row, best, values.data() + static_cast<size_t>(r) * bytes);
      }
    });
    size_t at = 0;
    for (const DocumentPart& range : ranges) {
      const size_t size = static_cast<size_t>(range.tokens) * bytes;
      write(std::span(values).subspan(at, size), range.begin * teacher_bytes(top_k));
      at += size;
    }
    on_sample(s + 1);
  }
}

}  // namespace dstrain
