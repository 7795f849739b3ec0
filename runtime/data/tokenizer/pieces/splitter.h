// Splitter: divides a text into the pieces that are merged by themselves, stage after stage, as the entries of
// pre_tokenizer of a tokenizer.json say.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/tokenizer/pieces/foreign_pattern.h"
#include "runtime/data/tokenizer/pieces/scanners.h"

namespace dstrain {

// What becomes of a text between pieces.
enum class LiteralSplit {
  alone,         // each is a piece
  runs_alone,    // those that follow one another are a piece
  begins_piece,  // each begins a piece
  ends_piece     // each ends a piece
};

// One stage. Each piece of the stage before is divided further.
struct SplitStage {
  enum class Kind {
    published,   // by a published pattern
    foreign,     // by another pattern
    each_digit,  // digits alone
    digits,      // runs of digits alone
    space,       // puts a space in front of a piece that does not begin with one
    literal      // at each `literal`, from the left
  };
  Kind kind = Kind::published;
  Pattern pattern = Pattern::gpt2;
  std::shared_ptr<const ForeignPattern> foreign;
  std::string literal;  // not empty where it counts
  LiteralSplit literal_split = LiteralSplit::alone;
};

class Splitter {
 public:
  explicit Splitter(std::vector<SplitStage> stages) : stages_(std::move(stages)) {}

  // Calls emit(piece) for each piece of `text`, valid UTF-8, in order. A piece is valid until emit returns.
  template <class Emit>
  void split(std::string_view text, const Emit& emit) const {
    split_from(0, text, emit);
  }

  // Returns whether the text may be cut into parts that are split by themselves, in front of a space that follows a
  // character that is none. The published patterns have an end of a piece there.
  bool cuts_at_spaces() const;
  // The same behind a newline, in front of a character that is no white space.
  bool cuts_at_newlines() const;

 private:
  template <class Emit>
  void split_from(size_t number, std::string_view text, const Emit& emit) const;
  bool has_only_published() const;

  std::vector<SplitStage> stages_;
};

// Calls emit(begin, end) for each digit, or each run of digits, and each run of other characters.
template <class Emit>
void scan_digits(std::string_view text, bool each, const Emit& emit);

// Returns the end of the run of digits, or of others, at `at`, and sets `digits`.
int64_t digits_run(std::string_view text, int64_t at, bool each, bool& digits);

template <class Emit>
void scan_digits(std::string_view text, bool each, const Emit& emit) {
  for (int64_t at = 0, end = 0; at < std::ssize(text); at = end) {
    bool digits = false;
    end = digits_run(text, at, each, digits);
    emit(at, end);
  }
}

// Calls emit(begin, end) for each piece that `literal` divides `text` into.
template <class Emit>
void scan_literal(std::string_view text, std::string_view literal, LiteralSplit split,
                  const Emit& emit) {
  const auto emit_some = [&](size_t begin, size_t end) {
    if (begin < end) emit(static_cast<int64_t>(begin), static_cast<int64_t>(end));
  };
  size_t done = 0;  // the end of what was emitted
  for (size_t at = text.find(literal); at != text.npos;) {
    size_t end = at + literal.size();
    if (split == LiteralSplit::runs_alone)
      while (text.substr(end).starts_with(literal)) end += literal.size();
    if (split != LiteralSplit::ends_piece) {
      emit_some(done, at);
      done = at;
    }
    if (split != LiteralSplit::begins_piece) {
      emit_some(done, end);
      done = end;
    }
    at = text.find(literal, end);
  }
  emit_some(done, text.size());
}

template <class Emit>
void Splitter::split_from(size_t number, std::string_view text, const Emit& emit) const {
  if (number == stages_.size()) return emit(text);
  const SplitStage& stage = stages_[number];
  const auto next = [&](int64_t begin, int64_t end) {
    split_from(number + 1,
               text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), emit);
  };
  switch (stage.kind) {
    case SplitStage::Kind::published:
      return scan_pieces(stage.pattern, text, next);
    case SplitStage::Kind::foreign:
      return stage.foreign->scan(text, next);
    case SplitStage::Kind::each_digit:
      return scan_digits(text, true, next);
    case SplitStage::Kind::digits:
      return scan_digits(text, false, next);
    case SplitStage::Kind::literal:
      return scan_literal(text, stage.literal, stage.literal_split, next);
    case SplitStage::Kind::space:
      if (text.starts_with(' ')) return split_from(number + 1, text, emit);
      return split_from(number + 1, ' ' + std::string(text), emit);
  }
}

}  // namespace dstrain
