// OutputWriter: writes text to standard output and standard error in a thread of its own, so that a terminal stopped by
// Ctrl-S, or a pipe that nobody reads, delays only the text. Invariant: texts appear in the order of the calls; only
// progress is ever dropped.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "launcher/output/standard_stream.h"
#include "launcher/process/descriptor.h"

namespace dstrain {

// Whether a text may be dropped if it cannot be written for long: `progress` may, `event` may not.
enum class TextKind : uint8_t { event, progress };

class OutputWriter {
 public:
  // Writes to duplicates of the descriptors, so that the caller may close them at any time. Drops the oldest progress
  // beyond `most_waiting` bytes of waiting text. Throws RunError if a descriptor cannot be duplicated.
  OutputWriter(int output, int error, size_t most_waiting = size_t{1} << 20);
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;
  // Drops the text that is not written yet, and does not wait for a write that blocks.
  ~OutputWriter();

  // Queues a text. Never blocks.
  void write(StandardStream stream, TextKind kind, std::string text);
  // Waits for at most `milliseconds` until everything is written. Returns whether it is.
  bool wait(int milliseconds);

 private:
  struct Text {
    StandardStream stream;
    TextKind kind;
    std::string bytes;
  };
  // The writing thread's data. The thread outlives the object if its write blocks.
  struct State {
    Descriptor output, error;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Text> waiting;
    size_t bytes = 0;     // of `waiting`
    int64_t dropped = 0;  // texts since the last one that was written
    bool begun = false;   // the thread runs
    bool writing = false;
    bool ends = false;
  };

  static void run(const std::shared_ptr<State>& state);

  size_t most_waiting_;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace dstrain
