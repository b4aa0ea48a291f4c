"""Earlier releases of this project: their code, and the pods that their operators create."""
