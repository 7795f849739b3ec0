// TeacherFile: FILE.teacher beside a data file: of each token the tokens that a teacher finds likeliest to follow it, and their
// log-probabilities (docs/formats.md, teach).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/data/teacher/teacher_record.h"
#include "runtime/data/token_source.h"

namespace dstrain {

inline constexpr std::string_view kTeacherSuffix = ".teacher";
// The log-probability of tokens that count nothing: e to the power of it is 0 in f32.
inline constexpr float kNoLogProb = -1e4f;

// A token has so many ids (u32), the likeliest first, and behind them as many log-probabilities (f16). Where a teacher has not
// been asked, they are ids 0 of minus infinity.
constexpr int64_t teacher_bytes(int64_t top_k) {
  return top_k * 6;
}

class TeacherFile {
 public:
  // Opens the file beside that of `source`, for a run that reads such samples of it. Throws UserError if there is none, if it is
  // not one of that many tokens with `top_k` each, or if its record (TeacherRecord) says that it is of other tokens or samples.
  TeacherFile(const TokenSource& source, const TaughtSamples& samples, int64_t top_k);

  const DataFile& file() const { return *file_; }
  // Returns "; nothing says ..." where the file has no record; else an empty text.
  std::string remark_text() const;

  // Reads what it has of tokens [begin, begin + count), whose labels are those given: to `ids` (count, top_k + 1) the label and
  // the teacher's tokens, -1 all where the label is below 0; to `log_probs` (count, top_k). Throws RunError at an id that is not
  // below `vocabulary`, and at a value that is no log-probability. Allocates nothing.
  void read(int64_t begin, int64_t count, const int32_t* labels, int64_t vocabulary, int32_t* ids,
            float* log_probs) const;

 private:
  std::unique_ptr<DataFile> file_;
  int64_t top_k_;
  bool recorded_ = false;
};

}  // namespace dstrain
