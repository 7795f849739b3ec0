// CacheRecord: what FILE.json says about a token file FILE of a run's cache (docs/formats.md): the text that it was made
// of, how, and the files that belong to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dstrain {

// A file as it is now. Unlike `modified_ns`, nobody can set `changed_ns`, the time of the last change of any kind.
struct FileState {
  ino_t number = 0;
  int64_t bytes = 0, modified_ns = 0, changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

// Throws UserError if the file cannot be looked at.
FileState state_of_file(const std::string& path);

struct CacheRecord {
  std::string path, checksum;       // of the text; the path is absolute
  FileState text;                   // when its checksum was computed
  int64_t looked_ns = 0;            // when that was
  std::string tokenizer;            // its checksum
  nlohmann::json lines;             // how the text's lines are encoded; null: it has none
  int64_t tokens = 0, targets = 0;  // targets: tokens that count in the loss
  std::string sums;                 // the checksum of FILE.sums
  std::vector<FileState> files;     // as states_of_token_file() returns them
};

std::string record_path(const std::string& file);

// Returns the record of a token file; nothing if there is none, or one of another version or that cannot be read.
std::optional<CacheRecord> record_of(const std::string& file);

// Replaces the record of a token file. Throws RunError.
void write_record(const std::string& file, const CacheRecord& record);

// Returns whether a text in the state `now` has the contents that the record's checksum is of, as far as that can be told
// without reading it.
bool is_text_known(const FileState& now, const CacheRecord& record);

// Returns the states of FILE, FILE.documents, FILE.sums and, if it is there, FILE.targets; nothing if one of the others is
// not there.
std::optional<std::vector<FileState>> states_of_token_file(const std::string& file);

// Returns whether FILE and the files beside it, all of which are read, have the checksums of FILE.sums, and this has the
// record's.
bool has_recorded_sums(const std::string& file, const CacheRecord& record);

// Writes FILE.sums of a new token file, and sets what the record says of the files. Throws RunError.
void seal_token_file(const std::string& file, CacheRecord& record);

}  // namespace dstrain
