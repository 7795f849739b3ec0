// TeacherRecord: FILE.teacher.json beside FILE.teacher, which says of which tokens, and of which samples of them, its values are
// (docs/formats.md, teach). What other programs write has none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/data/token_source.h"

namespace dstrain {

// How a data file is read as samples.
struct TaughtSamples {
  int64_t length = 0;  // tokens of a sample at most
  const DataFile* documents =
      nullptr;          // says where the documents begin that are samples; null: they are windows
  int64_t longest = 0;  // tokens of the longest document

  // Returns how many tokens of a document are in samples.
  int64_t taught_length() const { return longest < length ? longest : length; }
};

struct TeacherRecord {
  std::string data, documents;  // checksums of the files; no documents: the samples are windows
  int64_t length = 0;           // tokens of a window, or of those at the beginnings of documents
  bool operator==(const TeacherRecord&) const = default;
};

// Returns the path of the record of a teacher's file.
std::string teacher_record_path(const std::string& teacher_file);

// Returns what a teacher is asked about that reads such samples of `source`. The number of tokens is that of FILE.teacher. Reads the whole file, unless its checksum is known.
TeacherRecord teacher_record_of(const TokenSource& source, const TaughtSamples& samples);

// The record as text, and back. parse_teacher_record() returns nothing for any other text.
std::string record_text(const TeacherRecord& record);
std::optional<TeacherRecord> parse_teacher_record(std::string_view text);

// Returns the record beside a teacher's file; nothing if it is not there. Throws UserError if it cannot be read or is no such
// file.
std::optional<TeacherRecord> teacher_record_beside(const std::string& teacher_file);

// Throws UserError if the values that `taught` is of are not those of `samples`.
void check_teacher_record(const TeacherRecord& taught, const std::string& teacher_file,
                          const TokenSource& source, const TaughtSamples& samples);

}  // namespace dstrain
