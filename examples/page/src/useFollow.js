import { useEffect, useRef, useState } from 'react';

// Keeps a scrolling element at its end, unless the reader has scrolled up.
export function useFollow() {
  const element = useRef();
  const following = useRef(true);
  const [atEnd, setAtEnd] = useState(true);

  useEffect(() => {
    const { current } = element;
    let top = 0;
    const scrolled = () => {
      const end = current.scrollHeight - current.scrollTop - current.clientHeight < 40;
      // Away from the end without scrolling up: the content has grown meanwhile.
      following.current = end || (following.current && current.scrollTop >= top);
      top = current.scrollTop;
      setAtEnd(end || following.current);
    };
    const grown = new ResizeObserver(() => (following.current ? toEnd(current) : scrolled()));
    grown.observe(current);
    grown.observe(current.firstElementChild);
    current.addEventListener('scroll', scrolled);
    return () => {
      grown.disconnect();
      current.removeEventListener('scroll', scrolled);
    };
  }, []);

  function follow() {
    following.current = true;
    toEnd(element.current);
  }

  return { element, atEnd, follow };
}

function toEnd(element) {
  element.scrollTop = element.scrollHeight;
}
