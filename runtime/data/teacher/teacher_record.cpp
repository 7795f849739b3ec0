#include "runtime/data/teacher/teacher_record.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestRecord = int64_t{1} << 16;

std::string checksum_text(const DataFile& file) {
  return fmt::format("{:016x}", file.checksum());
}

std::string samples_text(bool documents, int64_t length) {
  return documents ? fmt::format("the first {} of each document", counted(length, "token"))
                   : fmt::format("windows of {}", counted(length, "token"));
}

}  // namespace

std::string teacher_record_path(const std::string& teacher_file) {
  return teacher_file + ".json";
}

TeacherRecord teacher_record_of(const TokenSource& source, const TaughtSamples& samples) {
  TeacherRecord record{
      .data = checksum_text(source.file()), .documents = {}, .length = samples.length};
  if (!samples.documents) return record;
  record.documents = checksum_text(*samples.documents);
  record.length = samples.taught_length();
  return record;
}

std::string record_text(const TeacherRecord& record) {
  nlohmann::ordered_json json = {{"data", record.data}, {"seq_len", record.length}};
  if (!record.documents.empty()) json["documents"] = record.documents;
  return json.dump() + "\n";
}

std::optional<TeacherRecord> parse_teacher_record(std::string_view text) try {
  const auto json = nlohmann::json::parse(text);
  TeacherRecord record{.data = json.at("data").get<std::string>(),
                       .documents = {},
                       .length = json.at("seq_len").get<int64_t>()};
  if (json.contains("documents")) record.documents = json.at("documents").get<std::string>();
  return record;
} catch (const std::exception&) {
  return std::nullopt;
}

std::optional<TeacherRecord> teacher_record_beside(const std::string& teacher_file) {
  const std::string path = teacher_record_path(teacher_file);
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return std::nullopt;
  std::optional<TeacherRecord> record =
      parse_teacher_record(read_input_file(path, "the record of a teacher's file", kLargestRecord));
  if (!record)
    fail_user(
        "{} does not say what {} is of: remove it if the file is of these data, or write both "
        "again "
        "(dstrain teach)",
        path, teacher_file);
  return record;
}

void check_teacher_record(const TeacherRecord& taught, const std::string& teacher_file,
                          const TokenSource& source, const TaughtSamples& samples) {
  const std::string& data = source.file().path();
  const bool by_document = !taught.documents.empty();
  if (by_document != (samples.documents != nullptr))
    fail_user(
        "{}: the teacher was asked about {} of {}, and this run reads {}: {}", teacher_file,
        by_document ? "documents" : "windows", data, by_document ? "windows" : "documents",
        by_document
            ? "set dstrain.data.packing to \"pack\" or \"pad\", or write the file again with "
              "dstrain teach --windows"
            : "set dstrain.data.packing to \"none\", or write the file again with dstrain teach "
              "without --windows");
  const TeacherRecord wanted = teacher_record_of(source, samples);
  if (taught.data != wanted.data || taught.documents != wanted.documents)
    fail_user(
        "{}: it is of other data than {} has now{}: put these back, or write the file again "
        "(dstrain teach)",
        teacher_file, data, taught.data == wanted.data ? ", whose documents begin elsewhere" : "");
  // What a token of a document is predicted from does not depend on how many tokens follow.
  const bool enough = by_document ? taught.length >= wanted.length : taught.length == wanted.length;
  if (!enough)
    fail_user(
        "{}: the teacher was asked about {} of {}, and this run reads {}: set dstrain.data.seq_len "
        "to {}, or write the file again (dstrain teach --seq_len {})",
        teacher_file, samples_text(by_document, taught.length), data,
        samples_text(by_document, wanted.length), taught.length, samples.length);
}

}  // namespace dstrain
