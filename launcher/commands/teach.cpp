// dstrain teach: writes what a trained model gives to the likeliest tokens at each place of a token file, for runs that learn from
// it (dstrain.objective distill).
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/process/failure.h"
#include "launcher/text/named_model.h"
#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/core/threads/core_share.h"
#include "runtime/data/open_dataset.h"
#include "runtime/data/packing/document_file.h"
#include "runtime/data/teacher/teacher_file.h"
#include "runtime/engine/forward/teacher_pass.h"

namespace dstrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBetweenLines{10};

// Returns the documents of the file; nothing where it has none or --windows says so.
std::optional<DocumentFile> documents_of(const TeachArguments& arguments,
                                         const TokenSource& source) {
  std::error_code none;
  if (arguments.windows || !std::filesystem::exists(arguments.data + ".documents", none))
    return std::nullopt;
  return DocumentFile(source);
}

// Returns the ranges of the file that runs read: its documents, or windows.
std::vector<TokenRange> ranges_of(const std::optional<DocumentFile>& documents,
                                  const TokenSource& source, int64_t length) {
  if (!documents) return ranges_of_windows(source.tokens(), length);
  std::vector<int64_t> begins;
  for (int64_t d = 0; d <= documents->documents(); ++d) begins.push_back(documents->begin(d));
  return ranges_of_documents(begins, length);
}

TeacherRecord record_of(const std::optional<DocumentFile>& documents, const TokenSource& source,
                        int64_t length) {
  TaughtSamples samples{.length = length};
  if (documents) {
    samples.documents = &documents->file();
    samples.longest = documents->longest();
  }
  return teacher_record_of(source, samples);
}

// Puts the file in its place, and its record beside it: never one beside a file that it does not belong to.
void commit(NewFile& file, const std::string& output, const TeacherRecord& record) {
  const std::string path = teacher_record_path(output);
  file.complete();
  remove_file(path);
  file.commit();
  write_file(path, record_text(record));
}

// Opens the file that is written, before anything is computed.
std::unique_ptr<NewFile> open_output(const std::string& path) try {
  if (std::filesystem::is_directory(path))
    fail_user("--output {} is a directory: name a file", printable(path));
  return std::make_unique<NewFile>(file_to_replace(path));
} catch (const RunError& e) {
  fail_user("--output: {}", e.what());
}

}  // namespace

int run_teach(const TeachArguments& arguments, const ModelRegistry& models) {
  const TrainedModel model = read_named_model(arguments, arguments.seq_len, models);
  const CheckDeviceBytes check_bytes =
      check_forward(model, "use shorter windows (--seq_len) or a smaller model");
  const Job& job = model.job;
  const int64_t ids = job.model.vocabulary(), top_k = arguments.top_k;
  if (top_k > ids)
    fail_user("--top_k {}: the model has {}: use at most as many", top_k, counted(ids, "token"));
  const std::unique_ptr<TokenSource> source = open_for_model(arguments.data, job, model.vocabulary);
  if (!source->remark().empty()) log::warn("{} is {}", arguments.data, source->remark());
  const int64_t length = job.model.seq_len();
  const std::optional<DocumentFile> documents = documents_of(arguments, *source);
  const std::vector<TokenRange> ranges = ranges_of(documents, *source, length);
  const bool several = documents && job.model.family().tells_documents();
  const PackedSamples samples = samples_of(ranges, length, several);
  const std::string output = arguments.output.empty()
                                 ? fmt::format("{}{}", arguments.data, kTeacherSuffix)
                                 : arguments.output;
  const std::unique_ptr<NewFile> file = open_output(output);
  ForwardModel forward(
      job, model.place, implementations(), length,
      several ? ForwardModel::Ends::with_logits_of_documents : ForwardModel::Ends::with_logits,
      take_core_share(0, 1, threads_asked_for()), check_bytes);
  auto told = Clock::now();
  teach(
      forward, *source, samples, top_k, ids,
      [&file](std::span<const std::byte> values, int64_t at) {
        file->write_at(values.data(), std::ssize(values), at);
      },
      [&](int64_t done) {
        if (Clock::now() - told < kBetweenLines) return;
        told = Clock::now();
        log::info("{} of {}", done, counted(samples.samples(), "sample"));
      });
  source->file().check_unchanged();
  const TeacherRecord record = record_of(documents, *source, length);
  commit(*file, output, record);
  print_result(
      fmt::format("{}: {} log-probabilities of {} in {} of at most {}, {}\n", output, top_k,
                  counted(source->tokens(), "token"), counted(samples.samples(), "sample"), length,
                  bytes_text(static_cast<double>(source->tokens() * teacher_bytes(top_k)))));
  return 0;
}

}  // namespace dstrain
