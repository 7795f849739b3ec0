// WatchedPage: the page of a run that goes on, made again when somebody asks for it and the run's files have changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dstrain::report {

// A page as it was at a time. Connections share it, so that many of them take no memory for it.
struct PageState {
  std::string text;
  std::string tag;  // of HTTP: another text has another tag
};

class WatchedPage {
 public:
  // `run`: its output directory. Throws UserError if it is none.
  explicit WatchedPage(std::string run);

  // Returns the page. It is at most a second old, or four times as old as making it takes, so that a page which many ask
  // for, or a large one, does not keep the processor from the run. A run that cannot be read any more has a page that says
  // why.
  std::shared_ptr<const PageState> state();

 private:
  void make();

  std::string run_;
  int64_t started_ns_;
  int64_t made_ns_ = 0,
          took_ns_ =
              0;  // when the page was made or found to be new, and the time that making it took
  std::string files_;  // what the run's files were then
  int64_t versions_ = 0;
  std::shared_ptr<const PageState> state_;
};

}  // namespace dstrain::report
