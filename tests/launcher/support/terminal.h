// Runs the program under test on a terminal of its own.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {

// A run of the program under test on a pseudo-terminal, which the test reads as a user would.
class TerminalProgram {
 public:
  // Starts dstrain in the folder, with c.json, its output directory `out` and these options. The terminal has 80
  // columns and is of the type `term`.
  TerminalProgram(const RunFolder& folder, const std::string& options,
                  const std::string& term = "xterm");
  // Runs any command line of a shell in the folder.
  struct CommandLine {
    std::string words;
  };
  TerminalProgram(const RunFolder& folder, const CommandLine& command,
                  const std::string& term = "xterm");
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;
  ~TerminalProgram();  // kills what still runs

  pid_t pid() const { return pid_; }
  // Reads what has been shown since the last call and returns all that was ever shown. Without it the terminal takes
  // no more text once its buffer is full, as after Ctrl-S.
  const std::string& read();
  // Types a text; "\x03" is ^C.
  void type(const std::string& text) const;
  // Reads until the text has been shown so many times. Returns whether it has within a minute.
  bool shows(const std::string& text, int times = 1);
  void close_terminal();
  // Changes the number of the terminal's columns, as a user who resizes the window does.
  void resize(int columns) const;
  // Waits for the end while it reads. Returns the exit status, or 128 + n where signal n ended it; -1 after `seconds`.
  int wait(double seconds = kForever);

 private:
  pid_t pid_ = -1;
  int terminal_ = -1;
  bool ended_ = false;
  std::string text_;
};

}  // namespace dstrain
