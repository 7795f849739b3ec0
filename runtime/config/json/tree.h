// Tree: a configuration as it was written, every key and value with its place. Invariant: numbers are
// finite (an integer beyond int64_t is a real), text is valid UTF-8, and nesting is at most kMaxDepth, so
// that recursion is safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

inline constexpr int kMaxDepth = 64;

// Where a value was written; `model_file` is the file of --model. `tokenizer`: the value follows from that of its folder.
enum class Source : uint8_t { file, model_file, set, command_line, tokenizer };

// A place in a source.
struct SourcePlace {
  Source source = Source::file;
  int line = 0, column = 0;  // from 1, columns in characters; 0: not from a file
};

struct Member;

// A value of any kind.
struct Node {
  // The JSON type; `integer` and `real` are both numbers.
  enum class Kind : uint8_t { null, boolean, integer, real, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;              // of an integer too
  std::string text;             // a string's value; a number as written
  std::vector<Node> items;      // array
  std::vector<Member> members;  // object, in the order of the file
  SourcePlace place;

  bool is(Kind k) const { return kind == k; }
  bool is_auto() const { return kind == Kind::string && text == "auto"; }
  // Returns the member of an object, or null: absent, or not an object.
  const Member* member(std::string_view key) const;
};

// A key of an object with its value.
struct Member {
  std::string key;
  SourcePlace place;  // of the key
  Node value;
  SourcePlace first{};  // of the same key earlier in the same object; line 0: none
};

// Returns the member at a dotted path below `root`, or null.
const Member* find(const Node& root, std::string_view path);

// Return the value as JSON text on one line, doubles in their shortest form.
std::string json_text(const Node& node);
std::string json_text(double value);
std::string json_text(std::string_view value);

}  // namespace dstrain
