#include "runtime/data/teacher/teacher_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "runtime/config/text.h"
#include "runtime/core/dtype.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr float kRoundedUp = 0.01f;  // what rounding may leave of the logarithm of 1

std::unique_ptr<DataFile> open_beside(const DataFile& data) {
  const std::string path = fmt::format("{}{}", data.path(), kTeacherSuffix);
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    fail_user(
        "dstrain.objective distill: there is no {}, the log-probabilities of a teacher: dstrain "
        "teach "
        "--model DIR --data {} writes it",
        path, data.path());
  return std::make_unique<DataFile>(path);
}

// Throws UserError if a file is not one of the tokens of `source`, with `top_k` log-probabilities each.
void check_size(const DataFile& file, const TokenSource& source, int64_t top_k) {
  const int64_t tokens = source.tokens();
  if (file.bytes() == tokens * teacher_bytes(top_k)) return;
  const int64_t of_token = file.bytes() / tokens;
  if (file.bytes() % tokens == 0 && of_token % teacher_bytes(1) == 0)
    fail_user(
        "{}: it has {} log-probabilities a token, and dstrain.objective.teacher_top_k is {}: set "
        "the "
        "key to {}",
        file.path(), of_token / teacher_bytes(1), top_k, of_token / teacher_bytes(1));
  fail_user(
      "{}: it has {} bytes, and {} of {} with {} log-probabilities each make {}: write it again "
      "(dstrain teach)",
      file.path(), file.bytes(), source.file().path(), counted(tokens, "token"), top_k,
      tokens * teacher_bytes(top_k));
}

}  // namespace

TeacherFile::TeacherFile(const TokenSource& source, const TaughtSamples& samples, int64_t top_k)
    : file_(open_beside(source.file())), top_k_(top_k) {
  check_size(*file_, source, top_k);
  const std::optional<TeacherRecord> record = teacher_record_beside(file_->path());
  if (!record) return;
  check_teacher_record(*record, file_->path(), source, samples);
  recorded_ = true;
}

std::string TeacherFile::remark_text() const {
  if (recorded_) return "";
  return fmt::format("; nothing says of which data {} is: {} is not there", file_->path(),
                     teacher_record_path(file_->path()));
}

void TeacherFile::read(int64_t begin, int64_t count, const int32_t* labels, int64_t vocabulary,
                       int32_t* ids, float* log_probs) const {
  const int64_t bytes = teacher_bytes(top_k_);
  const unsigned char* from = file_->checked(begin * bytes, count * bytes);
  for (int64_t t = 0; t < count; ++t, from += bytes, ids += top_k_ + 1, log_probs += top_k_) {
    ids[0] = labels[t];
    for (int64_t i = 0; i < top_k_; ++i) {
      uint32_t id = 0;
      uint16_t half = 0;
      std::memcpy(&id, from + 4 * i, sizeof(id));
      std::memcpy(&half, from + 4 * top_k_ + 2 * i, sizeof(half));
      const float value = to_float(f16{half});
      if (id >= vocabulary || !(value <= kRoundedUp))
        fail_run(
            "{}: token {}: the teacher gives id {} the log-probability {}: expected ids below {} "
            "and "
            "values of at most 0: write the file again (dstrain teach)",
            file_->path(), begin + t, id, value, vocabulary);
      ids[i + 1] = labels[t] < 0 ? -1 : static_cast<int32_t>(id);
      log_probs[i] = labels[t] < 0 ? kNoLogProb : std::max(value, kNoLogProb);
    }
  }
}

}  // namespace dstrain
