// JsonRecords: a text of JSON as records, each of which is one document.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace dstrain {

// The records are the lines of a text that are not blank; or, where it begins with '[', the elements of that one array,
// whatever lines they stand on. The caller keeps the text alive.
class JsonRecords {
 public:
  // Takes a record, and the offset in the text at which it begins.
  using Take = std::function<void(std::string_view record, size_t offset)>;

  // `begin`: where the text begins, behind a byte order mark. `path` names the text in messages.
  JsonRecords(std::string_view text, size_t begin, std::string path);

  // Returns the offset at which the first record may begin.
  size_t begin() const { return begin_; }
  // Returns the offset behind the last record that begins before `least`, or the text's end; `at` is begin() or such an
  // offset, at most `least`. Throws UserError, "FILE:LINE: ...", if the array is damaged up to there.
  size_t end_of_part(size_t at, size_t least) const;
  // Hands on the records of a part between two such offsets, in order.
  void each(size_t begin, size_t end, const Take& take) const;
  // Returns "FILE:LINE", or "FILE:LINE: element 7" of an array, of the record that begins at an offset. It reads the text
  // before.
  std::string place_of(size_t offset) const;

 private:
  struct Element {
    size_t begin = 0, end = 0;
    size_t next = 0;  // where the next one may begin
  };

  Element element(size_t at) const;
  size_t behind_space(size_t at) const;
  size_t behind_array(size_t at) const;
  std::string line_of(size_t offset) const;
  [[noreturn]] void fail(size_t offset, std::string_view message) const;

  std::string_view text_;
  std::string path_;
  size_t begin_;
  bool array_;
};

// Returns whether a text begins with '[', behind a byte order mark and white space.
bool begins_with_array(std::string_view text);

}  // namespace dstrain
