// The last line of a run that a stop signal ended: what is written, and what is not.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// Returns for example "signal 2 (Interrupt)".
std::string signal_text(int number);

// Returns the last line of a run that `number` ended before any step was done.
std::string stopped_before_steps(int number);

// Returns the last line of a run that `number` ended in a step or a save. `why` says what made that necessary, as a
// relative clause after the signal; it may be empty.
std::string stopped_at_once(int number, std::string_view why = "");

// Writes a line to standard error, unless that would block: a process that is to end does not wait for a terminal. On a
// terminal the line begins below a live line that may be there.
void write_stop_line(std::string_view text);

}  // namespace dstrain
