"""One connector against plain vLLM on a virtual GPU, in minutes: does it start, what does it switch, what
does it cost."""
