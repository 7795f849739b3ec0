// Failure: an exception as the world sees it: its kind, its text, and the exit status it leads to.
// Stands on core/error.h and the board. Invariant: every exception has one.
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

// Of the exception being handled.
Failure current_failure();

// On standard error, "dstrain: error: " before each line of the text; lines that begin with a blank
// belong to the one before and are left as they are.
void print_error(std::string_view text);

// Prints the error that is the exception being handled; returns the exit status it leads to.
int report_failure();

// Writes a command's result to standard output and flushes it. Throws RunError where that fails.
void print_result(std::string_view text);

}  // namespace dstrain
