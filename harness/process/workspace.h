// Private memory for a call (SPEC.md, chapter "Plug-in"), between guard pages, as near to the one
// at its end as its alignment lets it be, and filled with NaN as all around it is, so that a kernel
// that trusts its workspace to be zero, or overruns it, is found out.
//
//   Workspace workspace(bytes, Workspace::From::kept);
//   ... the call, with workspace.data() ...
//   if (!workspace.damage().empty()) ...
//
// The pages of all but huge ones are kept for the thread's calls to come, since new ones take
// longer than many a call. There are three areas of them, in turn, so that a kernel that keeps a
// pointer to the workspace of an earlier call meets a page that nobody can touch: as all are but
// those of the call. (Three, because forward and backward calls take turns themselves.)
#pragma once

#include <cstddef>
#include <string>

namespace attest {

class Workspace {
 public:
  // A call whose memory is measured gets fresh pages, whatever their number.
  enum class From { kept, fresh };

  // Throws InputError if so many bytes cannot be had. One of 0 bytes has data NULL.
  Workspace(std::size_t bytes, From from);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // What was written between it and the guards; empty if nothing was.
  std::string damage() const;

  // Gives back what the thread keeps, but for a little.
  static void give_back_most();

 private:
  bool open_kept();  // false if there are none
  void open_fresh();

  std::size_t bytes_, whole_ = 0;  // of it, and of its pages
  std::byte* reserved_ = nullptr;  // what is its alone, guards too; null if its pages are kept
  std::byte* first_ = nullptr;     // behind the guard
  std::byte* data_ = nullptr;
};

}  // namespace attest
