// Failure: the description of an exception for the user: its kind, its text and the exit status that follows from it.
// Also the functions that print errors and results.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/rank_board.h"

namespace dstrain {

struct Failure {
  FailureKind kind = FailureKind::internal;
  std::string text;
  int exit_status() const { return kind == FailureKind::user ? 1 : 2; }
};

// Returns the failure of the exception that is being handled. Any type of exception has one.
Failure current_failure();

// Prints to standard error, with "dstrain: error: " before each line of the text. Lines that begin with a blank
// continue the one before and get no such beginning.
void print_error(std::string_view text);

// Prints the exception that is being handled as an error. Returns the exit status that follows from it.
int report_failure();

// Writes a command's result to standard output and flushes it. Throws RunError if that fails.
void print_result(std::string_view text);

}  // namespace dstrain
