// MismatchedAnswers: documents that are a prompt and an answer become two each, the document itself and its prompt with the
// answer of another document behind it. How likely a model finds answers that do not belong to their prompts says how far it is
// from its reference (KTO).
#pragma once

#include <string>
#include <vector>

#include "runtime/data/documents/documents.h"

namespace dstrain {

class MismatchedAnswers {
 public:
  // Takes the documents of the next part of a file, in order. Returns the documents that follow: each, and behind it its prompt
  // with the answer of the last document before it that has one; the first one of a file with that of the next. An answer is
  // what is behind the first token that counts, that token included.
  EncodedPart take(const EncodedPart& part);
  // Ends the file `path`. Throws UserError if documents are left, since fewer than two have an answer.
  void finish(const std::string& path) const;

 private:
  struct Document : EncodedConversation {
    size_t answer = 0;  // where it begins
  };
  static Document document_of(const EncodedPart& part, size_t begin, size_t end);
  // Returns the answer of a document, whose tokens count as those of a desirable one.
  static EncodedConversation answer_of(const Document& document);
  // Adds a document, and its prompt with the last answer, to a part.
  void add(const Document& document, EncodedPart& to);

  std::vector<Document> waiting_;  // until two documents have an answer
  int answers_ = 0;                // of documents so far, at most 2
  EncodedConversation last_;       // the newest one
};

}  // namespace dstrain
