// OutputWriter: writes text to standard output and standard error in a thread of its own, so that a terminal stopped by
// Ctrl-S or a pipe that nobody reads delays the text and nothing else. Stands on child.h. Invariant: texts appear in the
// order in which they were given; only progress is ever dropped.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "launcher/output/standard_stream.h"
#include "launcher/ranks/child.h"

namespace dstrain {

// `progress` may be dropped where it cannot be written for long; `event` may not.
enum class TextKind : uint8_t { event, progress };

class OutputWriter {
 public:
  // Writes to duplicates of the descriptors, so that the caller may close them at any time. Beyond `most_waiting` bytes
  // of waiting text the oldest progress is dropped. Throws RunError where a descriptor cannot be duplicated.
  OutputWriter(int output, int error, size_t most_waiting = size_t{1} << 20);
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;
  // Drops what could not be written and does not wait for a write that blocks.
  ~OutputWriter();

  // Gives a text to be written. Never blocks.
  void write(StandardStream stream, TextKind kind, std::string text);
  // Returns whether everything is written, after waiting for that for at most `milliseconds`.
  bool wait(int milliseconds);

 private:
  struct Text {
    StandardStream stream;
    TextKind kind;
    std::string bytes;
  };
  // What the writing thread uses. The thread may outlive the object, within a write that blocks.
  struct State {
    Descriptor output, error;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Text> waiting;
    size_t bytes = 0;     // of `waiting`
    int64_t dropped = 0;  // texts of progress since the last one was written
    bool writing = false;
    bool ends = false;
  };

  static void run(const std::shared_ptr<State>& state);

  size_t most_waiting_;
  std::shared_ptr<State> state_;
};

}  // namespace dstrain
