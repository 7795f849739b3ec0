// Tree: a configuration as it was written, every key and value with its place. Stands on nothing.
// Invariant: numbers are finite (an integer beyond int64_t is a real), text is valid UTF-8, a key that an object
// holds twice knows its first place, and nesting is at most kMaxDepth, so recursion is safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

inline constexpr int kMaxDepth = 64;

enum class Source : uint8_t { file, model_file, set, command_line };

struct SourcePlace {
  Source source = Source::file;
  int line = 0, column = 0;  // from 1, columns in characters; 0: not from a file
};

struct Member;

struct Node {
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
  const Member* member(std::string_view key) const;  // null: absent, or not an object
};

struct Member {
  std::string key;
  SourcePlace place;  // of the key
  Node value;
  SourcePlace first{};  // where the key stood before in the same object; line 0: nowhere
};

// The value at a dotted path below `root`, or null.
const Member* find(const Node& root, std::string_view path);

// The value as JSON text on one line; doubles in their shortest form.
std::string json_text(const Node& node);
std::string json_text(double value);
std::string json_text(std::string_view value);

}  // namespace dstrain
