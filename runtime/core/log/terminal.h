// What a terminal can do.
#pragma once

namespace dstrain {

// Returns the columns of the terminal `descriptor` now; 80 if they are not known.
int terminal_columns(int descriptor);

// Returns whether `descriptor` is a terminal that can erase a line: TERM is not "dumb".
bool can_erase_lines(int descriptor);

}  // namespace dstrain
