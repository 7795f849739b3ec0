#include "runtime/data/token_cache/token_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/fine_tuning/objective_names.h"
#include "runtime/data/array_source.h"
#include "runtime/data/chat/template_directory.h"
#include "runtime/data/file/data_files.h"
#include "runtime/data/file/file_kind.h"
#include "runtime/data/file/token_sums.h"
#include "runtime/data/token_cache/cache_record.h"
#include "runtime/data/token_cache/line_settings.h"
#include "runtime/data/token_cache/tokenize_files.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 200;  // of a file in the cache, without what is put behind it

std::string checksum_of_file_text(const std::string& path) {
  const DataFile file(path);
  const uint64_t sum = checksum_of_many(file.data(), file.bytes());
  file.check_whole();
  return fmt::format("{:016x}", sum);
}

constexpr std::string_view kLockFile = ".lock";

// A folder, and those that it is in. Those that were not there before are removed again if nothing is put into the folder.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path) : path_(path) {
    std::error_code none;
    for (fs::path at = path_; !at.empty() && !fs::exists(at, none); at = at.parent_path())
      made_.push_back(at);
  }
  void make() const { make_directory(path_.string()); }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code none;
    if (made_.empty()) return;
    for (const auto& entry : fs::directory_iterator(path_, none))
      if (entry.path().filename() != kLockFile) return;
    fs::remove(path_ / kLockFile, none);
    for (const fs::path& folder : made_) fs::remove(folder, none);  // an empty one
  }

 private:
  fs::path path_;
  std::vector<fs::path> made_;  // the innermost first
};

// Held while files of a folder are made. Where the file system has no locks there is none: files appear whole all the
// same.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : file_(::open(fmt::format("{}/{}", folder, kLockFile).c_str(),
                     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (file_ >= 0) ::close(file_);
  }

 private:
  int file_;
};

std::string_view name_of(LossOn loss_on) {
  switch (loss_on) {
    case LossOn::assistant:
      return "assistant";
    case LossOn::completion:
      return "completion";
    case LossOn::all:
      return "all";
    case LossOn::usual:
      break;
  }
  return "usual";
}

AnswerLines answers_of(const Objective& objective) {
  if (objective.rates_answers()) return AnswerLines::rated;
  return objective.has_pairs() ? AnswerLines::pairs : AnswerLines::none;
}

int64_t time_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class TokenCache {
 public:
  TokenCache(const Job& job, CacheUse use, const std::function<void()>& before_writing)
      : job_(job), use_(use), before_writing_(before_writing), folder_(job.output + "/cache") {}

  // Returns the token file of a text, which has been made if need be.
  std::string file_of(const std::string& text) {
    const std::string path = fs::absolute(text).lexically_normal().string();
    const auto known = files_.find(path);
    if (known != files_.end()) return known->second;
    const std::string file = folder_ + "/" + free_name(text);
    files_[path] = file;
    if (!take(text, path, file)) make(text, path, file);
    return file;
  }

  TokenizedTexts report(const std::vector<std::string>& texts) const {
    const int64_t all = made_ + taken_;
    const std::string& where = all == 1 ? files_.begin()->second : folder_;
    TokenizedTexts result{.files = texts, .line = "", .warnings = warnings_, .made = made_ > 0};
    result.line = fmt::format(
        "{}: {}, {}", texts.size() == 1 ? texts.front() : names_of_files(texts),
        counted(tokens_, "token"),
        targets_ < tokens_ ? fmt::format("of which {} count in the loss, ", targets_) : "");
    if (made_ == 0)
      result.line += fmt::format("tokenized before into {}", where);
    else
      result.line += fmt::format("{}tokenized into {} in {:.1f} s{}",
                                 taken_ > 0 ? fmt::format("{} ", made_) : "", where, seconds_,
                                 taken_ > 0 ? fmt::format(", {} before", taken_) : "");
    return result;
  }

 private:
  // Returns a name in the cache that no other text of the run has.
  std::string free_name(const std::string& text) {
    const std::string own = fs::path(text).filename().string();
    const std::string begin = own.size() > kLongestName ? "text" : own;
    std::string name = begin + ".bin";
    for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}.{}.bin", begin, i);
    return name;
  }

  // The checksum of the tokenizer, with the settings that the end of a text's documents depends on.
  const std::string& tokenizer_sum(bool settings) {
    std::string& sum = tokenizer_sums_[settings];
    if (sum.empty())
      sum = tokenizer_checksum(job_.model_directory, settings, job_.data.added_tokens);
    return sum;
  }

  // What the tokens of a text's lines depend on besides the tokenizer and its settings, which may have the template.
  const nlohmann::json& lines_of(const std::string& text) {
    nlohmann::json& lines = lines_[has_json_lines(text)];
    if (lines.is_null() && has_json_lines(text))
      lines = {
          {"chat_template", chat_template_checksum(job_.model_directory, job_.data.chat_template)},
          {"loss_on", name_of(job_.data.loss_on)},
          {"skip_invalid", job_.data.skip_invalid}};
    if (job_.objective.has_pairs()) lines["pairs"] = true;
    if (job_.objective.rates_answers()) lines["rated"] = true;
    return lines;
  }

  // Returns whether the token file is there, is the text's and is whole. What a rank reads of a file that another process
  // has prepared is compared with its checksums when it is read.
  bool take(const std::string& text, const std::string& path, const std::string& file) {
    std::optional<CacheRecord> record = record_of(file);
    if (!record || record->tokenizer != tokenizer_sum(has_json_lines(text)) ||
        record->lines != lines_of(text))
      return false;
    const int64_t looked = time_now_ns();
    const FileState now = state_of_file(text);
    if (now.bytes != record->text.bytes) return false;
    const bool known = path == record->path && is_text_known(now, *record);
    if (!known && checksum_of_file_text(text) != record->checksum) return false;
    if (use_ == CacheUse::make) {
      const auto files = states_of_token_file(file);
      const bool same_files = files == record->files;
      if (!same_files && !has_recorded_sums(file, *record)) {
        damaged_.insert(file);
        return false;
      }
      if (!known || !same_files) {  // the next start need not read them again
        record->path = path;
        record->text = now;
        record->looked_ns = looked;
        record->files = files.value();
        before_writing_();
        write_record(file, *record);
      }
    }
    tokens_ += record->tokens;
    targets_ += record->targets;
    ++taken_;
    return true;
  }

  void make(const std::string& text, const std::string& path, const std::string& file) {
    if (use_ == CacheUse::read)
      fail_user(
          "{}, which the launching process has made, has not been made of the text {} that is "
          "here: all hosts need the same text, tokenizer and chat template, and --output on a file "
          "system that they share",
          file, text);
    if (!has_json_lines(text)) refuse_doubtful(DataFile(text));
    open_model_tokenizer();
    const NewFolder folder(folder_);
    before_writing_();
    folder.make();
    const FolderLock lock(folder_);
    if (take(text, path, file)) return;  // another process has made it meanwhile
    const auto begin = std::chrono::steady_clock::now();
    const int64_t looked = time_now_ns();
    const FileState before = state_of_file(text);
    CacheRecord record{.path = path,
                       .checksum = checksum_of_file_text(text),
                       .text = before,
                       .looked_ns = looked,
                       .tokenizer = tokenizer_sum(has_json_lines(text)),
                       .lines = lines_of(text),
                       .tokens = 0,
                       .targets = 0,
                       .sums = "",
                       .files = {}};
    std::error_code none;
    // They are not those of the new file.
    for (const std::string& of_old : {record_path(file), sums_path(file)}) fs::remove(of_old, none);
    const DocumentCounts counts =
        tokenize_files(*tokenizer_, {text}, rules_of(text).options, file, Links::replaced);
    if (counts.tokens == 0) fail_user("the text {} has no tokens", text);
    if (counts.targets == 0)
      fail_user(
          "none of the tokens of {} counts in the loss: its lines have no answer, or another "
          "dstrain.data.loss_on is meant",
          text);
    if (state_of_file(text) != before && checksum_of_file_text(text) != record.checksum)
      fail_user("the text {} has changed while it was tokenized: start again", text);
    record.tokens = counts.tokens;
    record.targets = counts.targets;
    seal_token_file(file, record);
    write_record(file, record);
    if (damaged_.erase(file) > 0)
      warnings_.push_back(
          fmt::format("{} and the files beside it are not as they were made (they are damaged, or "
                      "something has written to them): they are made anew of {}",
                      file, text));
    for (std::string& warning : warnings_of(counts)) warnings_.push_back(std::move(warning));
    tokens_ += counts.tokens;
    targets_ += counts.targets;
    ++made_;
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  const LineRules& rules_of(const std::string& text) {
    std::optional<LineRules>& rules = rules_[has_json_lines(text)];
    if (!rules)
      rules = line_rules(job_.model_directory, *tokenizer_, {text},
                         {.chat_template = job_.data.chat_template,
                          .loss_on = job_.data.loss_on,
                          .skip_invalid = job_.data.skip_invalid,
                          .answers = answers_of(job_.objective),
                          .named_by = kTemplateKey},
                         warnings_);
    return *rules;
  }

  void open_model_tokenizer() {
    if (tokenizer_) return;
    tokenizer_ = open_tokenizer(job_.model_directory, job_.data.added_tokens);
    warnings_.insert(warnings_.begin(), tokenizer_->warnings().begin(),
                     tokenizer_->warnings().end());
  }

  const Job& job_;
  CacheUse use_;
  const std::function<void()>& before_writing_;
  std::string folder_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  // Of texts, and of JSON lines.
  std::map<bool, std::string> tokenizer_sums_;
  std::map<bool, nlohmann::json> lines_;
  std::map<bool, std::optional<LineRules>> rules_;
  std::map<std::string, std::string> files_;  // of texts, by their absolute paths
  std::set<std::string> names_, damaged_;     // damaged_: files of files_
  std::vector<std::string> warnings_;
  int64_t made_ = 0, taken_ = 0, tokens_ = 0, targets_ = 0;
  double seconds_ = 0;
};

// Refuses the keys of JSON lines where there are none.
void refuse_line_keys(const DataConfig& data) {
  const std::string_view key = data.loss_on != LossOn::usual ? "dstrain.data.loss_on"
                               : data.skip_invalid           ? "dstrain.data.skip_invalid"
                               : !data.chat_template.empty() ? kTemplateKey
                                                             : "";
  if (!key.empty())
    fail_user(
        "{} is of JSON lines that a run tokenizes (--model DIR, files FILE.jsonl), and none of its "
        "data files is one: remove the key; for a token file give it to dstrain tokenize",
        key);
}

// Refuses data that cannot be answers to compare. `texts`: the files that are tokenized.
void check_answers(const Job& job, const std::vector<std::string>& texts) {
  std::vector<std::string> paths = data_files(job.data.paths);
  if (!job.data.val_path.empty()) paths.push_back(job.data.val_path);
  for (const std::string& path : paths)
    if (std::ranges::find(texts, path) == texts.end() || !has_json_lines(path))
      fail_user(
          "dstrain.objective {} learns of {}, and the data file {} has none: give files of JSON "
          "lines with them (FILE.jsonl), beside a model's folder with its tokenizer (--model DIR)",
          name_of(job.objective.kind),
          job.objective.has_pairs() ? "pairs of answers, \"chosen\" and \"rejected\""
                                    : "answers with a \"label\"",
          path);
}

bool is_text(const std::string& path) {
  return !is_token_file(DataFile(path));
}

// Returns whether the job's texts are tokenized.
bool takes_texts(const Job& job) {
  return job.model.family().reads_tokens() && !job.model_directory.empty() &&
         job.data.format == DataFormat::automatic && job.data.vocab.empty();
}

}  // namespace

std::vector<std::string> texts_to_tokenize(const Job& job) {
  if (!takes_texts(job)) return {};
  std::vector<std::string> paths = data_files(job.data.paths);
  if (!job.data.val_path.empty()) paths.push_back(job.data.val_path);
  std::erase_if(paths, [](const std::string& path) { return !is_text(path); });
  return paths;
}

TokenizedTexts use_token_cache(Job& job, CacheUse use,
                               const std::function<void()>& before_writing) {
  const std::vector<std::string> texts = texts_to_tokenize(job);
  if (job.objective.compares_answers()) check_answers(job, texts);
  if (std::ranges::none_of(texts, has_json_lines)) refuse_line_keys(job.data);
  if (texts.empty()) return {};
  if (!has_tokenizer(job.model_directory))
    fail_user(
        "the data file {} is text, and the model's folder {} has no tokenizer.json to make tokens "
        "of it: transformers makes one (AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)); "
        "or give a token file, or dstrain.data.format \"char\" or \"byte\"",
        texts.front(), job.model_directory);
  TokenCache cache(job, use, before_writing);
  DataConfig data = job.data;
  data.paths = data_files(data.paths);
  const auto replace = [&](std::string& path) {
    if (std::ranges::find(texts, path) != texts.end()) path = cache.file_of(path);
  };
  std::ranges::for_each(data.paths, replace);
  replace(data.val_path);
  job.data = std::move(data);
  return cache.report(texts);
}

}  // namespace dstrain
