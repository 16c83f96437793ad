import { useEffect } from 'react';

// Calls `onSeen` once every unit in the element has been in view. A hidden tab shows nothing.
export function useSeen(element, active, onSeen) {
  useEffect(() => {
    if (!active) return;
    const unseen = new Set(element.current.querySelectorAll('.unit'));
    const observer = new IntersectionObserver(entries => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        target.dataset.seen = '';
        unseen.delete(target);
        observer.unobserve(target);
      }
      if (unseen.size === 0) onSeen();
    }, { threshold: 0.9 });
    for (const unit of unseen) observer.observe(unit);
    if (unseen.size === 0) onSeen();
    return () => observer.disconnect();
  }, [active]);
}
