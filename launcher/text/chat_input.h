// ChatInput: the lines that a user types, and ^C (SIGINT), which ends an answer and not the program.
#pragma once

#include <unistd.h>

#include <csignal>
#include <string>

#include "launcher/process/descriptor.h"

namespace dstrain {

class ChatInput {
 public:
  // Blocks SIGINT in this thread, and in all that it starts from now on.
  ChatInput();
  ChatInput(const ChatInput&) = delete;
  ChatInput& operator=(const ChatInput&) = delete;
  ~ChatInput();  // SIGINT ends the program again

  enum class Read { line, interrupted, end };
  // Waits for a line of the standard input, without its line break. `interrupted`: ^C came first, and what was typed is gone.
  Read read(std::string& line);
  // Returns whether ^C has come since the last call of this function or of read().
  bool interrupted();
  // Returns whether somebody types the lines.
  bool is_terminal() const { return terminal_; }

 private:
  // Takes a line out of what has been read. Returns whether there was one.
  bool take_line(std::string& line, bool at_end);

  sigset_t before_{};
  Descriptor signals_;
  // The standard input, opened once more where it is a terminal: ^C throws away what poll() has announced, and a read would
  // wait for the next line.
  Descriptor opened_;
  int input_ = STDIN_FILENO;
  bool terminal_, ended_ = false;
  std::string text_;  // that has been read and not taken
};

}  // namespace dstrain
