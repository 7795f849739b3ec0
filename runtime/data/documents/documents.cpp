#include "runtime/data/documents/documents.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/chat/chat_line.h"
#include "runtime/data/documents/json_records.h"
#include "runtime/data/documents/mismatched_answers.h"
#include "runtime/data/file/data_file.h"
#include "runtime/data/file/file_kind.h"
#include "runtime/data/token_source.h"

namespace dstrain {
namespace {

constexpr size_t kRangeBytes = size_t{256}
                               << 10;  // a thread's unit of work, where it can be cut there
constexpr size_t kRangesEach = 8;      // of a thread at a time
constexpr size_t kSpaceBytes = 4096;   // in which an array in a file FILE.json begins

// A part of a file's text that is encoded by itself.
struct Range {
  size_t begin = 0, end = 0;
};

// What encoding a range gave.
struct RangeResult {
  EncodedPart part;
  DocumentCounts counts;  // first_skipped without the line's place
  size_t skipped_at = 0;  // the offset of that line
  std::exception_ptr error;
};

class FileEncoder {
 public:
  FileEncoder(const Tokenizer& tokenizer, const DataFile& file, const LineOptions& options)
      : tokenizer_(tokenizer),
        file_(file),
        options_(options),
        text_(reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.bytes())),
        begin_(static_cast<size_t>(text_begin(file))),
        threads_(static_cast<size_t>(thread_count())) {
    for (size_t i = 0; i < threads_; ++i)
      encoders_.push_back(std::make_unique<ConversationEncoder>(tokenizer, options.chat));
    if (has_json_lines(file.path())) records_.emplace(text_, begin_, file.path());
  }

  void run(DocumentCounts& counts, const TakePart& take) {
    size_t at = records_ ? records_->begin() : begin_;
    while (at < text_.size()) {
      std::vector<Range> ranges;
      while (at < text_.size() && ranges.size() < threads_ * kRangesEach) {
        ranges.push_back({at, end_of_range(at)});
        at = ranges.back().end;
      }
      std::vector<RangeResult> results = encode(ranges);
      file_.check_whole();
      for (size_t i = 0; i < ranges.size(); ++i) {
        if (results[i].error) std::rethrow_exception(results[i].error);
        name_skipped(results[i], counts);
        add(results[i].counts, counts);
        if (!records_ && ranges[i].begin == begin_) {
          results[i].part.starts.push_back(0);
          ++counts.documents;
        }
        if (options_.answers == AnswerLines::rated)
          results[i].part = mismatched_.take(results[i].part);
        counts.tokens += std::ssize(results[i].part.ids);
        take(results[i].part, static_cast<int64_t>(ranges[i].end));
      }
    }
    mismatched_.finish(file_.path());
    counts.bytes += file_.bytes();
    file_.check_unchanged();
  }

 private:
  // Returns the end of the range that begins at `at`.
  size_t end_of_range(size_t at) const {
    size_t end = at + kRangeBytes;
    if (records_) return records_->end_of_part(at, end);
    if (end >= text_.size()) return text_.size();
    if (!tokenizer_.may_cut()) return text_.size();
    const std::string_view left =
        text_.substr(at);  // a document's text before a cut plays no part behind it
    while (end < text_.size() && !tokenizer_.may_cut(left, static_cast<int64_t>(end - at))) ++end;
    return end;
  }

  std::vector<RangeResult> encode(const std::vector<Range>& ranges) {
    std::vector<RangeResult> results(ranges.size());
    std::atomic<size_t> next{0};
    run_parts(static_cast<int64_t>(std::min(threads_, ranges.size())), [&](int64_t thread) {
      for (size_t i = next++; i < ranges.size(); i = next++) {
        try {
          encode(ranges[i], *encoders_[static_cast<size_t>(thread)], results[i]);
        } catch (...) {
          results[i].error = std::current_exception();
        }
      }
    });
    return results;
  }

  void encode(const Range& range, ConversationEncoder& encoder, RangeResult& result) const {
    if (records_)
      return records_->each(range.begin, range.end, [&](std::string_view record, size_t offset) {
        encode_record(record, offset, encoder, result);
      });
    const std::string_view text = text_.substr(range.begin, range.end - range.begin);
    unicode::Invalid invalid;
    encoder.texts().encode(text, result.part.ids, invalid);
    result.counts.text_bytes += std::ssize(text);
    result.counts.targets = std::ssize(result.part.ids);
    result.counts.invalid = invalid.places;
    if (invalid.places > 0)
      result.counts.first_invalid = fmt::format("{}: offset {}", file_.path(),
                                                range.begin + static_cast<size_t>(invalid.first));
  }

  void name_skipped(RangeResult& result, const DocumentCounts& before) const {
    std::string& first = result.counts.first_skipped;
    if (!first.empty() && before.first_skipped.empty())
      first = records_->place_of(result.skipped_at) + first;
  }

  void encode_record(std::string_view record, size_t offset, ConversationEncoder& encoder,
                     RangeResult& result) const {
    const std::function<std::string()> place = [this, offset] {
      return options_.skip_invalid ? std::string() : records_->place_of(offset);
    };
    EncodedPart& part = result.part;
    const size_t before = part.ids.size();
    std::vector<size_t> starts;
    const bool rated = options_.answers == AnswerLines::rated;
    bool desirable = true;
    try {
      const ChatLine read = read_chat_line(record, place, result.counts.ignored);
      desirable = read.label.value_or(true);
      if (read.label && !rated) count_ignored("label", result.counts.ignored);
      const std::span<const ChatLine> documents =
          read.kind == ChatLineKind::preference ? std::span(read.answers) : std::span(&read, 1);
      try {
        check_kind(read);
        for (const ChatLine& document : documents) {
          starts.push_back(part.ids.size());
          encoder.encode(document, part, result.counts.ignored);
        }
      } catch (const UserError& e) {
        throw UserError(fmt::format("{}: {}", place(), e.what()));
      }
      for (const ChatLine& document : documents)
        if (document.kind == ChatLineKind::messages)
          ++result.counts.conversations;
        else
          result.counts.text_bytes += std::ssize(document.text) + std::ssize(document.completion);
    } catch (const UserError& e) {
      if (!options_.skip_invalid) throw;
      part.ids.resize(before);
      part.counts.resize(before);
      if (result.counts.skipped++ == 0) {
        result.counts.first_skipped = e.what();
        result.skipped_at = offset;
      }
      return;
    }
    if (rated && !desirable)
      std::ranges::replace_if(
          part.counts.begin() + static_cast<std::ptrdiff_t>(before), part.counts.end(),
          [](uint8_t c) { return c != 0; }, kUndesirable);
    for (size_t i = 0; i < starts.size(); ++i) {
      const size_t end = i + 1 < starts.size() ? starts[i + 1] : part.ids.size();
      add_document(part, starts[i], end, result.counts);
    }
  }

  void check_kind(const ChatLine& line) const {
    const bool pair = line.kind == ChatLineKind::preference;
    const bool wants_pair = options_.answers == AnswerLines::pairs;
    if (wants_pair && !pair)
      fail_user("the line has no \"chosen\" and \"rejected\", of which dstrain.objective learns");
    if (options_.answers == AnswerLines::rated && !line.label)
      fail_user(
          "the line has no \"prompt\" and \"completion\" with a \"label\", true or false, of which "
          "dstrain.objective kto learns");
    if (pair && !wants_pair)
      fail_user(
          "the line has \"chosen\" and \"rejected\", of which only a run with dstrain.objective "
          "learns");
  }

  // Adds a document that lies in [begin, end) of the part's ids.
  static void add_document(EncodedPart& part, size_t begin, size_t end, DocumentCounts& counts) {
    part.starts.push_back(begin);
    ++counts.documents;
    const auto at = [&part](size_t i) {
      return part.counts.begin() + static_cast<std::ptrdiff_t>(i);
    };
    const auto targets = std::count_if(at(begin), at(end), [](uint8_t c) { return c != 0; });
    counts.targets += targets;
    counts.without_targets += targets == 0 && end > begin;
  }

  static void add(const DocumentCounts& more, DocumentCounts& counts) {
    counts.documents += more.documents;
    counts.conversations += more.conversations;
    counts.text_bytes += more.text_bytes;
    counts.invalid += more.invalid;
    if (counts.first_invalid.empty()) counts.first_invalid = more.first_invalid;
    counts.targets += more.targets;
    counts.without_targets += more.without_targets;
    counts.skipped += more.skipped;
    if (counts.first_skipped.empty()) counts.first_skipped = more.first_skipped;
    for (const auto& [name, times] : more.ignored) counts.ignored[name] += times;
  }

  const Tokenizer& tokenizer_;
  const DataFile& file_;
  const LineOptions& options_;
  std::string_view text_;
  size_t begin_;
  std::optional<JsonRecords> records_;  // nothing: the text is one document
  size_t threads_;
  std::vector<std::unique_ptr<ConversationEncoder>> encoders_;
  MismatchedAnswers mismatched_;
};

}  // namespace

bool has_json_lines(const std::string& path) {
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return true;
  if (!path.ends_with(".json")) return false;
  std::ifstream file(path, std::ios::binary);
  std::string beginning(kSpaceBytes, '\0');
  file.read(beginning.data(), kSpaceBytes);
  beginning.resize(static_cast<size_t>(file.gcount()));
  return begins_with_array(beginning);
}

void encode_file(const Tokenizer& tokenizer, const std::string& path, const LineOptions& options,
                 DocumentCounts& counts, const TakePart& take) {
  const DataFile file(path);
  FileEncoder(tokenizer, file, options).run(counts, take);
}

}  // namespace dstrain
