// Meter: what rendering may take, so that any template ends; and the line of the template that is rendered, for messages.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/value.h"

namespace dstrain::jinja {

// The most that rendering a conversation may take.
struct Limits {
  int64_t steps = 100'000'000;         // evaluated parts of expressions, and statements
  int64_t bytes = int64_t{128} << 20;  // of all texts and lists that one rendering makes
  int64_t output = int64_t{64} << 20;  // bytes of a rendered text
};

// What a text and a list take in memory besides their bytes and items.
inline constexpr size_t kTextBytes = 64, kListBytes = 128;

class Meter {
 public:
  // `now`: what strftime_now() writes.
  Meter(std::string source, const Limits& limits, std::time_t now)
      : source_(std::move(source)), left_(limits), most_(limits), now_(now) {}

  void at(int line) { line_ = line; }
  int line() const { return line_; }
  std::time_t now() const { return now_; }
  const std::string& source() const { return source_; }

  // Begins a further rendering of the conversation, which may make as many bytes as the first.
  void begin_rendering() { left_.bytes = most_.bytes; }

  // Each throws UserError if more is taken than may be. Bytes are counted before they are made.
  void step(int64_t count = 1);
  void bytes(size_t count);
  void items(size_t count) { bytes(count * sizeof(Value)); }                 // of a list
  void texts(size_t count) { bytes(count * (sizeof(Value) + kTextBytes)); }  // without their bytes
  void check_output(size_t bytes) const;

  // Makes a list of items that have been counted. Throws UserError where it is nested too deeply.
  Value list(std::vector<Value> items, bool tuple = false, bool generator = false);
  // Counts a text, and makes it.
  Value text(std::string_view text);

  // Throws UserError: "SOURCE: line 3: MESSAGE".
  [[noreturn]] void fail(std::string_view message) const;
  // Throws UserError for a part of the language that is not available, with what to do.
  [[noreturn]] void fail_unknown(std::string_view what) const;

 private:
  friend class Level;

  std::string source_;
  Limits left_, most_;
  std::time_t now_;
  int line_ = 0, levels_ = 0;
};

// A level of nesting while it is evaluated. Throws UserError if there are too many.
class Level {
 public:
  explicit Level(Meter& meter);
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { --meter_.levels_; }

 private:
  Meter& meter_;
};

}  // namespace dstrain::jinja
