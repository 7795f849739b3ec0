// The token files that are made of a run's texts, in the folder `cache` of its output directory (docs/formats.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

// Returns the files of the job's data, for training and validation, that its model's tokenizer makes tokens of: texts
// beside a model from a folder of Hugging Face, where the configuration gives neither format nor vocabulary. Throws
// UserError if one cannot be read.
std::vector<std::string> texts_to_tokenize(const Job& job);

// Who may write to the cache: the process that prepares a run, but not one that follows it.
enum class CacheUse { make, read };

// What became of a run's texts.
struct TokenizedTexts {
  std::vector<std::string> files;     // the texts
  std::string line;                   // for the log; empty: there are no texts
  std::vector<std::string> warnings;  // a sentence each
  bool made = false;                  // this process has tokenized one
};

// Replaces the texts among the job's data by token files of the cache. One that is not there, or that was made of
// another text or by another tokenizer, is made; other processes that want it too wait meanwhile. Calls `before_writing`
// before anything is written. Throws UserError if there is no tokenizer, for what is wrong with it or a text, and where a
// file is not there and `use` is `read`; RunError if it cannot be written.
TokenizedTexts use_token_cache(Job& job, CacheUse use, const std::function<void()>& before_writing);

}  // namespace dstrain
