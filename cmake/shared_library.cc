// CMake wants a source file in every library; all the code of the shared libraries comes from static ones.
