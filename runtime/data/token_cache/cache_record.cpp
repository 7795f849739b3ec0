#include "runtime/data/token_cache/cache_record.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/array_source.h"
#include "runtime/data/file/token_sums.h"

namespace dstrain {
namespace {

using nlohmann::ordered_json;

// The version of a record. It is raised where the same text and tokenizer make other ids than before.
constexpr int kCacheVersion = 5;
constexpr int64_t kLargestRecord = int64_t{1} << 20, kLargestSumsText = int64_t{64} << 20;
// Two changes within the resolution of a file system's times may have the same time.
constexpr int64_t kTimeResolution = 2'000'000'000;  // ns

int64_t in_nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileState state_in(const struct stat& status) {
  return {.number = status.st_ino,
          .bytes = status.st_size,
          .modified_ns = in_nanoseconds(status.st_mtim),
          .changed_ns = in_nanoseconds(status.st_ctim)};
}

ordered_json json_of(const FileState& state) {
  return {{"number", state.number},
          {"bytes", state.bytes},
          {"modified_ns", state.modified_ns},
          {"changed_ns", state.changed_ns}};
}

FileState state_in(const nlohmann::json& json) {
  return {.number = json.at("number").get<ino_t>(),
          .bytes = json.at("bytes").get<int64_t>(),
          .modified_ns = json.at("modified_ns").get<int64_t>(),
          .changed_ns = json.at("changed_ns").get<int64_t>()};
}

std::string checksum_text(const std::string& bytes) {
  return fmt::format("{:016x}", checksum_of(bytes.data(), std::ssize(bytes)));
}

std::string read_sums(const std::string& file) {
  return read_input_file(sums_path(file), "the checksums of a token file", kLargestSumsText);
}

}  // namespace

FileState state_of_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    fail_user("cannot look at the file {}: {}", path, std::strerror(errno));
  return state_in(status);
}

std::string record_path(const std::string& file) {
  return file + ".json";
}

std::optional<CacheRecord> record_of(const std::string& file) try {
  std::error_code none;
  if (!std::filesystem::is_regular_file(record_path(file), none)) return std::nullopt;
  const auto json = nlohmann::json::parse(
      read_input_file(record_path(file), "the record of a token file", kLargestRecord));
  if (json.at("version").get<int>() != kCacheVersion) return std::nullopt;
  const auto& text = json.at("text");
  CacheRecord r{.path = text.at("path").get<std::string>(),
                .checksum = text.at("checksum").get<std::string>(),
                .text = state_in(text.at("state")),
                .looked_ns = text.at("looked_ns").get<int64_t>(),
                .tokenizer = json.at("tokenizer").get<std::string>(),
                .lines = json.at("lines"),
                .tokens = json.at("tokens").get<int64_t>(),
                .targets = json.at("targets").get<int64_t>(),
                .sums = json.at("sums").get<std::string>(),
                .files = {}};
  for (const auto& state : json.at("files")) r.files.push_back(state_in(state));
  return r;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
} catch (const UserError&) {
  return std::nullopt;
}

void write_record(const std::string& file, const CacheRecord& r) {
  ordered_json files = ordered_json::array();
  for (const FileState& state : r.files) files.push_back(json_of(state));
  const ordered_json record = {{"version", kCacheVersion},
                               {"text",
                                {{"path", r.path},
                                 {"checksum", r.checksum},
                                 {"state", json_of(r.text)},
                                 {"looked_ns", r.looked_ns}}},
                               {"tokenizer", r.tokenizer},
                               {"lines", ordered_json(r.lines)},
                               {"tokens", r.tokens},
                               {"targets", r.targets},
                               {"sums", r.sums},
                               {"files", files}};
  // A path may be invalid UTF-8.
  write_file(record_path(file),
             record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

bool is_text_known(const FileState& now, const CacheRecord& record) {
  return now == record.text && record.looked_ns - now.changed_ns > kTimeResolution;
}

std::optional<std::vector<FileState>> states_of_token_file(const std::string& file) {
  std::vector<FileState> states;
  const std::string targets = file + ".targets";
  for (const std::string& path : {file, file + ".documents", sums_path(file), targets}) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0)
      states.push_back(state_in(status));
    else if (path != targets)
      return std::nullopt;
  }
  return states;
}

bool has_recorded_sums(const std::string& file, const CacheRecord& record) try {
  const std::string text = read_sums(file);
  const std::optional<TokenSums> sums = parse_sums(text);
  if (!sums || checksum_text(text) != record.sums) return false;
  const auto now = states_of_token_file(file);
  const auto same_size = [](const FileState& a, const FileState& b) { return a.bytes == b.bytes; };
  return now && std::ranges::equal(*now, record.files, same_size) &&
         sums_of_token_file(file, sums->ids) == *sums;
} catch (const UserError&) {  // one of the files cannot be read
  return false;
}

void seal_token_file(const std::string& file, CacheRecord& record) {
  const std::unique_ptr<TokenSource> tokens = open_token_file(std::make_unique<DataFile>(file));
  tokens->check_ids(0, tokens->tokens(), {.size = INT64_MAX, .key = ""});
  const std::string text = sums_text(sums_of_token_file(file, tokens->vocabulary().size));
  write_file(sums_path(file), text);
  record.sums = checksum_text(text);
  record.files = states_of_token_file(file).value();
}

}  // namespace dstrain
