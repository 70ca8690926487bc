"""The device plugin beside us: notices one that gives this node's GPUs to pods and knows nothing of claims, says so, and tells
which GPU which pod has through it. Asks the kubelet only; changes nothing."""
